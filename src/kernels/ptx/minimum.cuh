// Minimum and maximum with NaN, which C++ has no operator for.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#floating-point-instructions-min
#pragma once

namespace cake_moe::ptx {

// The smaller of two values, NaN if either is NaN.
__device__ __forceinline__ float min_nan(float a, float b) {
  float least;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(least) : "f"(a), "f"(b));
  return least;
}

// The larger of two values, NaN if either is NaN.
__device__ __forceinline__ float max_nan(float a, float b) {
  float largest;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(largest) : "f"(a), "f"(b));
  return largest;
}

}  // namespace cake_moe::ptx

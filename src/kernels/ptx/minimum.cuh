// Minima that C++ has no operator for.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#floating-point-instructions-min
#pragma once

namespace cake_moe::ptx {

// The smaller of two values, NaN if either is NaN.
__device__ __forceinline__ float min_nan(float a, float b) {
  float least;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(least) : "f"(a), "f"(b));
  return least;
}

}  // namespace cake_moe::ptx

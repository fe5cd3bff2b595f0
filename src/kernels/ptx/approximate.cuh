// Approximations by the special function unit. Their bits are the GPU's own: only for results that a correction makes
// exact.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#floating-point-instructions-rcp
#pragma once

namespace cake_moe::ptx {

// 1 / x within one ulp for a normal x and quotient.
__device__ __forceinline__ float rcp_approx(float x) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

}  // namespace cake_moe::ptx

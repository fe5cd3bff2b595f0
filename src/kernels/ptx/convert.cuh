// Narrow-format conversions.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-cvt
#pragma once

#include <cstdint>

namespace cake_moe::ptx {

// Two e4m3 codes, round to nearest even, saturating at 448, NaN -> 0x7F. The first operand takes the high byte.
__device__ __forceinline__ uint16_t cvt_e4m3x2(float high, float low) {
  uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
}

#if defined(__CUDA_ARCH_FEAT_SM100_ALL) || defined(__CUDA_ARCH_FEAT_SM103_ALL)
#define CAKE_HAS_CVT_E2M1 1

// Eight e2m1 codes, value i in bits 4i..4i+3, round to nearest even, saturating at 6, NaN -> +6.
__device__ __forceinline__ uint32_t cvt_e2m1x8(const float (&x)[8]) {
  uint32_t codes;
  asm("{\n\t"
      ".reg .b8 b0, b1, b2, b3;\n\t"
      "cvt.rn.satfinite.e2m1x2.f32 b0, %2, %1;\n\t"
      "cvt.rn.satfinite.e2m1x2.f32 b1, %4, %3;\n\t"
      "cvt.rn.satfinite.e2m1x2.f32 b2, %6, %5;\n\t"
      "cvt.rn.satfinite.e2m1x2.f32 b3, %8, %7;\n\t"
      "mov.b32 %0, {b0, b1, b2, b3};\n\t"
      "}"
      : "=r"(codes)
      : "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]), "f"(x[4]), "f"(x[5]), "f"(x[6]), "f"(x[7]));
  return codes;
}
#else
#define CAKE_HAS_CVT_E2M1 0
#endif

}  // namespace cake_moe::ptx

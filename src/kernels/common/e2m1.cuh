// Codes of e2m1 where the GPU has no instruction for them.
#pragma once

#include <cstdint>

#include "numerics/nvfp4.h"

namespace cake_moe {

// encode_e2m1 of four products in the low sixteen bits, the first in the lowest; the bits above are void. The grid is
// 1/2 below 2, 1 below 4, then 2, so a magnitude's code is the integer nearest to the least of 2 * a, a + 2 and
// a / 2 + 4; each is rounded once, ties to even, by the addition that leaves it in the low mantissa bits. The NaN that
// a product gives has a clear sign.
__device__ __forceinline__ uint32_t encode_e2m1x4(const float (&x)[4]) {
  constexpr float kInteger = 0x1p23f;
  uint32_t steps[4];   // and other bits above 24
  uint32_t signs = 0;  // and other bits beside them
#pragma unroll
  for (int i = 3; i >= 0; --i) {
    const float a = fminf(fabsf(x[i]), kE2m1Max);
    steps[i] = min(min(float_bits(fma_rn(a, 2.0f, kInteger)), float_bits(add_rn(a, kInteger + 2))),
                   float_bits(fma_rn(a, 0.5f, kInteger + 4)));
    signs = __funnelshift_l(float_bits(x[i]), signs, 4);
  }
  return ((steps[3] * 16 + steps[2]) * 256 + steps[1] * 16 + steps[0]) | (signs & 0x8888u);
}

}  // namespace cake_moe

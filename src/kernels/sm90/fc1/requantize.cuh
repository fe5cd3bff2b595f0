// Requantisation of FC1's activated values to e2m1 codes and block scales.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/ptx/minimum.cuh"
#include "numerics/nvfp4.h"

namespace cake_moe::sm90::fc1 {

// encode_e2m1 of four products in the low sixteen bits, the first in the lowest; the bits above are void. The grid is
// 1/2 below 2, 1 below 4, then 2, so a magnitude's code is the integer nearest to the least of 2 * a, a + 2 and
// a / 2 + 4; each is rounded once, ties to even, by the addition that leaves it in the low mantissa bits. The NaN that
// a product gives has a clear sign.
__device__ __forceinline__ uint32_t encode_products(const float (&x)[4]) {
  constexpr float kInteger = 0x1p23f;
  uint32_t steps[4];   // and other bits above 24
  uint32_t signs = 0;  // and other bits beside them
#pragma unroll
  for (int i = 3; i >= 0; --i) {
    const float a = fminf(fabsf(x[i]), kE2m1Max);
    steps[i] = std::min({float_bits(fma_rn(a, 2.0f, kInteger)), float_bits(add_rn(a, kInteger + 2)),
                         float_bits(fma_rn(a, 0.5f, kInteger + 4))});
    signs = __funnelshift_l(float_bits(x[i]), signs, 4);
  }
  return ((steps[3] * 16 + steps[2]) * 256 + steps[1] * 16 + steps[0]) | (signs & 0x8888u);
}

// Four lanes requantise a block; lane `part` encodes `v`, features 4 * part .. 4 * part + 3. factor_of(scale) is
// hidden_block_factor. Called by whole warps. `codes` and `scale` are the block's.
template <typename FactorOf>
__device__ __forceinline__ void requantize_block(const float (&v)[4], int part, float encode, const FactorOf& factor_of,
                                                 bool store, uint8_t* codes, uint8_t* scale) {
  // Of |x| as an operand, which masks would take instructions for.
  float amax = ptx::max_nan(ptx::max_nan(fabsf(v[0]), fabsf(v[1])), ptx::max_nan(fabsf(v[2]), fabsf(v[3])));
  amax = ptx::max_nan(amax, __shfl_xor_sync(~0u, amax, 1));
  amax = ptx::max_nan(amax, __shfl_xor_sync(~0u, amax, 2));
  const bool nan = amax != amax;
  const uint8_t block_scale = hidden_block_scale(amax, encode);
  const float factor = factor_of(block_scale);
  const uint32_t word =
      encode_products({mul_rn(v[0], factor), mul_rn(v[1], factor), mul_rn(v[2], factor), mul_rn(v[3], factor)});
  if (!store) return;
  reinterpret_cast<uint16_t*>(codes)[part] = static_cast<uint16_t>(nan ? 0 : word);
  if (part == 0) *scale = nan ? kE4m3Nan : block_scale;
}

__device__ __forceinline__ void requantize_block(const float (&v)[4], int part, float encode, bool store,
                                                 uint8_t* codes, uint8_t* scale) {
  const auto factor_of = [&](uint8_t block_scale) { return hidden_block_factor(block_scale, encode); };
  requantize_block(v, part, encode, factor_of, store, codes, scale);
}

}  // namespace cake_moe::sm90::fc1

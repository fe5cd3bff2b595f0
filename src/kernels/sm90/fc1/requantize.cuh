// Requantisation of FC1's activated values to e2m1 codes and block scales.
#pragma once

#include <cstdint>

#include "kernels/common/e2m1.cuh"
#include "kernels/ptx/minimum.cuh"

namespace cake_moe::sm90::fc1 {

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
      encode_e2m1x4({mul_rn(v[0], factor), mul_rn(v[1], factor), mul_rn(v[2], factor), mul_rn(v[3], factor)});
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

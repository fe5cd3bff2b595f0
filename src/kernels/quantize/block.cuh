// Quantisation of one block of kGroup bf16 values by one thread.
#pragma once

#include <cstdint>

#include "kernels/common/e2m1.cuh"
#include "numerics/nvfp4.h"

namespace cake_moe::quantize {

// Two bf16 magnitudes at a time: without their sign bits the order of the codes is the order of the values, and a NaN
// lies above infinity.
__device__ __forceinline__ float block_amax(const uint32_t (&pairs)[kGroup / 2]) {
  uint32_t amax = 0;
#pragma unroll
  for (int i = 0; i < kGroup / 2; ++i) amax = __vmaxu2(amax, pairs[i] & 0x7FFF7FFFu);
  const uint16_t low = static_cast<uint16_t>(amax), high = static_cast<uint16_t>(amax >> 16);
  return bf16_to_float(low > high ? low : high);
}

// Codes of eight values (four bf16 pairs), each multiplied by `factor`.
__device__ __forceinline__ uint32_t encode_8(const uint32_t* pairs, float factor) {
  float x[8];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[2 * i] = mul_rn(bits_float(pairs[i] << 16), factor);
    x[2 * i + 1] = mul_rn(bits_float(pairs[i] & 0xFFFF0000u), factor);
  }
#if CAKE_HAS_CVT_E2M1
  return ptx::cvt_e2m1x8(x);
#else
  const uint32_t low = encode_e2m1x4({x[0], x[1], x[2], x[3]}), high = encode_e2m1x4({x[4], x[5], x[6], x[7]});
  return __byte_perm(low, high, 0x5410);
#endif
}

struct Block {
  uint2 codes;
  uint8_t scale;
};

__device__ __forceinline__ Block quantize_block(const uint32_t (&pairs)[kGroup / 2], float encode) {
  const float amax = block_amax(pairs);
  const uint8_t scale = input_block_scale(amax, encode);
  if (scale == kE4m3Nan) return {make_uint2(0, 0), kE4m3Nan};
  const float factor = input_block_factor(amax, scale, encode);
  return {make_uint2(encode_8(pairs, factor), encode_8(pairs + 4, factor)), scale};
}

// The same of sixteen consecutive bf16.
__device__ __forceinline__ Block quantize_block(const uint4& low, const uint4& high, float encode) {
  const uint32_t pairs[] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  return quantize_block(pairs, encode);
}

}  // namespace cake_moe::quantize

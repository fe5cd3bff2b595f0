// NVFP4: the e2m1 and e4m3 codecs and the rule that quantises one block of kGroup values.
#pragma once

#include <cstdint>

#include "numerics/fp32.h"
#include "plan/problem.h"
#if defined(__CUDA_ARCH__)
#include "kernels/ptx/convert.cuh"
#endif

namespace cake_moe {

inline constexpr uint8_t kE4m3Nan = 0x7F;
inline constexpr float kE4m3Max = 448.0f;
inline constexpr float kE2m1Max = 6.0f;
inline constexpr float kOneSixth = 0.16666667163372040f;  // the float32 nearest to 1/6
inline constexpr float kFloatMax = 3.4028234663852886e38f;

// Code (4 bits) = sign << 3 | index into {0, .5, 1, 1.5, 2, 3, 4, 6}. Nearest, ties to the even code, saturating; NaN
// gives +6, as cvt.rn.satfinite.e2m1x2.f32 does.
CAKE_HD inline uint32_t encode_e2m1(float x) {
  const float a = abs_bits(x) < kE2m1Max ? abs_bits(x) : kE2m1Max;
  // The grid is 1/2 below 2, 1 below 4, then 2: 2^22 times the power of two below `a` (at least 1) has that ulp.
  const uint32_t power = (float_bits(a) & 0x7F800000u) > 0x3F800000u ? float_bits(a) & 0x7F800000u : 0x3F800000u;
  const uint32_t large = power + (22u << 23);
  const uint32_t steps = float_bits(add_rn(a, bits_float(large))) - large;
  const uint32_t sign = is_nan(x) ? 0u : float_bits(x) >> 31;
  return sign << 3 | (steps + (power >> 22) - 254u);
}

// Twice the value of a code, an integer in -12..12.
CAKE_HD inline int decode_e2m1_twice(uint32_t code) {
  const int magnitude = static_cast<int>(0xC8643210u >> (code & 7u) * 4u & 15u);
  return code & 8u ? -magnitude : magnitude;
}

// Round to nearest even, saturating at 448; NaN gives 0x7F. The sign is kept.
CAKE_HD inline uint8_t encode_e4m3(float x) {
#if defined(__CUDA_ARCH__)
  return static_cast<uint8_t>(ptx::cvt_e4m3x2(0.0f, x));
#else
  const uint32_t sign = float_bits(x) >> 24 & 0x80u;
  const uint32_t u = float_bits(x) & 0x7FFFFFFFu;
  // Below 2^-6 the grid is 2^-9, the ulp of 2^14: let one float addition round.
  const uint32_t subnormal = float_bits(add_rn(bits_float(u), 16384.0f)) - 0x46800000u;
  const uint32_t normal = (u + 0x7FFFFu + (u >> 20 & 1u) - (120u << 23)) >> 20;
  uint32_t code = u < 0x3C800000u ? subnormal : normal;
  code = u > 0x43E00000u ? 0x7Eu : code;  // above 448
  code = u > 0x7F800000u ? kE4m3Nan : code;
  return static_cast<uint8_t>(u > 0x7F800000u ? code : sign | code);
#endif
}

// Exact. 0x7F and 0xFF are NaN.
CAKE_HD inline float decode_e4m3(uint32_t code) {
  const uint32_t sign = (code & 0x80u) << 24;
  const uint32_t m = code & 0x7Fu;
  const float normal = bits_float((m << 20) + (120u << 23));
  const float subnormal = static_cast<float>(m) * 0.001953125f;  // m * 2^-9
  const float magnitude = m < 8u ? subnormal : m == 0x7Fu ? bits_float(0x7FFFFFFFu) : normal;
  return bits_float(float_bits(magnitude) | sign);
}

// Block scale of the operator's input: e4m3(amax * (encode / 6)). amax is a magnitude; NaN gives kE4m3Nan.
CAKE_HD inline uint8_t input_block_scale(float amax, float encode) {
  return encode_e4m3(mul_rn(amax, mul_rn(encode, kOneSixth)));
}

// Factor that brings the block's values onto the e2m1 grid. A scale that rounded to zero gives FLT_MAX: its elements
// saturate and contribute nothing.
CAKE_HD inline float input_block_factor(float amax, uint8_t scale, float encode) {
  const float factor = div_rn(1.0f, mul_rn(decode_e4m3(scale), div_rn(1.0f, encode)));
  return amax == 0.0f ? 0.0f : factor > kFloatMax ? kFloatMax : factor;
}

// Block scale of the requantised SiTU output: e4m3((amax * encode) * (1/6)).
CAKE_HD inline uint8_t hidden_block_scale(float amax, float encode) {
  return encode_e4m3(mul_rn(mul_rn(amax, encode), kOneSixth));
}

CAKE_HD inline float hidden_block_factor(uint8_t scale, float encode) {
  return scale == 0 ? 0.0f : div_rn(encode, decode_e4m3(scale));
}

// A block with a NaN: scale kE4m3Nan, so that every product with it is NaN, and all codes zero.

}  // namespace cake_moe

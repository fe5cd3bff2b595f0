// The conversions that kernels spend their time in, without the general model's unpacking: same results, bit for bit.
#pragma once

#include <bit>
#include <cstdint>

namespace ptxrun::fast {

inline bool is_nan(uint32_t f32) { return (f32 & 0x7FFFFFFF) > 0x7F800000; }

// f32 -> bf16, .rn.
inline uint32_t bf16(uint32_t f32) { return is_nan(f32) ? 0x7FFF : (f32 + 0x7FFF + (f32 >> 16 & 1)) >> 16; }

// f32 -> e2m1, .rn.satfinite: thresholds between the codes' magnitudes; a tie goes to the even code.
inline uint32_t e2m1(uint32_t f32) {
  const float a = std::bit_cast<float>(f32 & 0x7FFFFFFF);
  const uint32_t code = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
  return is_nan(f32) ? 7 : code | (f32 >> 28 & 8);
}

// f32 -> e4m3, .rn.satfinite.
inline uint32_t e4m3(uint32_t f32) {
  constexpr uint32_t kMaxFinite = 0x7E, kMinNormal = 121u << 23, kRebias = (127u - 7) << 3;
  const uint32_t magnitude = f32 & 0x7FFFFFFF, sign = f32 >> 24 & 0x80;
  if (is_nan(f32)) return 0x7F;
  // Below the normal numbers the codes are multiples of 2^-9; adding 2^23 rounds to an integer.
  const float units = std::bit_cast<float>(magnitude) * 512.0f + 8388608.0f;
  const uint32_t subnormal = std::bit_cast<uint32_t>(units) & 0xF;
  const uint32_t normal = ((magnitude + 0x7FFFF + (magnitude >> 20 & 1)) >> 20) - kRebias;
  const uint32_t code = magnitude < kMinNormal ? subnormal : normal < kMaxFinite ? normal : kMaxFinite;
  return code | sign;
}

// f32 -> f16, .rn.
inline uint32_t f16(uint32_t f32) {
  constexpr uint32_t kInfinity = 0x7C00, kMinNormal = 113u << 23, kRebias = (127u - 15) << 10;
  const uint32_t magnitude = f32 & 0x7FFFFFFF, sign = f32 >> 16 & 0x8000;
  if (is_nan(f32)) return 0x7FFF;
  const float units = std::bit_cast<float>(magnitude) * 16777216.0f + 8388608.0f;
  const uint32_t subnormal = std::bit_cast<uint32_t>(units) & 0x7FF;
  const uint32_t normal = ((magnitude + 0xFFF + (magnitude >> 13 & 1)) >> 13) - kRebias;
  const uint32_t code = magnitude < kMinNormal ? subnormal : normal < kInfinity ? normal : kInfinity;
  return code | sign;
}

// To f32, exact; NaN stays some NaN.
inline float from_f16(uint32_t f16) {
  const uint32_t magnitude = f16 & 0x7FFF, sign = (f16 & 0x8000) << 16;
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  const uint32_t bits = magnitude < 0x7C00 ? std::bit_cast<uint32_t>(scaled) : magnitude << 13 | 0x7F800000;
  return std::bit_cast<float>(bits | sign);
}

inline float from_bf16(uint32_t bf16) { return std::bit_cast<float>(bf16 << 16); }

}  // namespace ptxrun::fast

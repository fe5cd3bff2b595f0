// Shared by the two kinds of matrix steps: blocks of columns, alignment, rounding of the sum.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "model/mma_arithmetic.h"

// The loops over a block of columns are written for the vectoriser, which GCC leaves out at -O2.
#if defined(__GNUC__) && !defined(__clang__)
#define PTXRUN_VECTORISED __attribute__((optimize("O3")))
#else
#define PTXRUN_VECTORISED
#endif

namespace ptxrun::model::detail {

inline constexpr int kBlock = 16;           // columns that are worked on together
inline constexpr int kZeroExponent = -126;  // exponent with which a zero enters the alignment
inline constexpr uint32_t kNanResult = 0x7FFF'FFFF;

struct Term {
  int64_t significand;
  int exponent;
};

// An accumulator as significand * 2^(exponent - 23); infinities and NaNs are looked for before.
inline Term unpack_f32(uint32_t bits) {
  const int field = static_cast<int>((bits >> 23) & 0xFF);
  const int64_t fraction = bits & 0x7F'FFFF;
  const int64_t magnitude = field == 0 ? fraction : fraction | 0x80'0000;
  return {(bits >> 31) != 0 ? -magnitude : magnitude, magnitude == 0 ? kZeroExponent : std::max(field, 1) - 127};
}

inline bool is_f32_special(uint32_t bits) { return (bits & 0x7F80'0000) == 0x7F80'0000; }

// significand * 2^left >> right toward zero; right may exceed the width.
inline int64_t align(int64_t significand, int left, int right) {
  const int shift = left - right;
  const int64_t magnitude = significand < 0 ? -significand : significand;
  const int64_t aligned = shift >= 0 ? magnitude << shift : (shift > -64 ? magnitude >> -shift : 0);
  return significand < 0 ? -aligned : aligned;
}

// sum * 2^exponent toward zero to f32 with `fraction_bits` (at most 23) fraction bits.
inline uint32_t truncate_to_f32(int64_t sum, int exponent, int fraction_bits = 23) {
  if (sum == 0) return 0;
  const uint32_t sign = sum < 0 ? 0x8000'0000 : 0;
  const uint64_t magnitude = sum < 0 ? uint64_t(0) - static_cast<uint64_t>(sum) : static_cast<uint64_t>(sum);
  const int top = 63 - std::countl_zero(magnitude);
  const int result_exponent = std::max(top + exponent, kF32.min_exponent());
  if (result_exponent > kF32.bias) return sign | static_cast<uint32_t>(kF32.infinity());
  const int shift = result_exponent - fraction_bits - exponent;
  const uint64_t kept = shift >= 0 ? (shift < 64 ? magnitude >> shift : 0) : magnitude << -shift;
  const auto fraction = static_cast<uint32_t>(kept << (23 - fraction_bits));
  return sign | ((static_cast<uint32_t>(result_exponent - kF32.min_exponent()) << 23) + fraction);
}

}  // namespace ptxrun::model::detail

// Binary floating-point formats, and the exact way between a bit pattern and significand * 2^exponent.
#pragma once

#include <cstdint>

namespace ptxrun::model {

// Rounding of a conversion: .rn, .rna, .rz, .rm, .rp of the PTX ISA.
enum class Rounding { kNearestEven, kNearestAway, kTowardZero, kDown, kUp };

// What the largest exponent field encodes.
enum class SpecialValues {
  kIeee,        // infinities and NaNs
  kNanAllOnes,  // NaN where exponent and fraction are all ones, no infinity
  kNone,        // finite values only
};

// A sign bit, `exponent_bits`, `fraction_bits`; subnormals where the exponent field is zero.
struct FloatFormat {
  int exponent_bits;
  int fraction_bits;
  int bias;
  SpecialValues special;
  uint64_t canonical_nan;  // what a NaN becomes in a conversion to this format

  constexpr int width() const { return 1 + exponent_bits + fraction_bits; }
  constexpr int min_exponent() const { return 1 - bias; }
  constexpr uint64_t sign_mask() const { return uint64_t{1} << (width() - 1); }
  constexpr uint64_t fraction_mask() const { return (uint64_t{1} << fraction_bits) - 1; }
  constexpr uint64_t exponent_field_max() const { return (uint64_t{1} << exponent_bits) - 1; }
  constexpr uint64_t infinity() const { return exponent_field_max() << fraction_bits; }
  constexpr uint64_t max_finite() const {
    if (special == SpecialValues::kIeee) return infinity() - 1;
    return (sign_mask() - 1) - (special == SpecialValues::kNanAllOnes ? 1 : 0);
  }
};

inline constexpr FloatFormat kF64{11, 52, 1023, SpecialValues::kIeee, 0x7FF8'0000'0000'0000};
inline constexpr FloatFormat kF32{8, 23, 127, SpecialValues::kIeee, 0x7FFF'FFFF};
inline constexpr FloatFormat kF16{5, 10, 15, SpecialValues::kIeee, 0x7FFF};
inline constexpr FloatFormat kBf16{8, 7, 127, SpecialValues::kIeee, 0x7FFF};
inline constexpr FloatFormat kE4m3{4, 3, 7, SpecialValues::kNanAllOnes, 0x7F};
inline constexpr FloatFormat kE5m2{5, 2, 15, SpecialValues::kIeee, 0x7F};
// No NaN: the PTX ISA converts it to the largest positive value.
inline constexpr FloatFormat kE2m3{2, 3, 1, SpecialValues::kNone, 0x1F};
inline constexpr FloatFormat kE3m2{3, 2, 3, SpecialValues::kNone, 0x1F};
inline constexpr FloatFormat kE2m1{2, 1, 1, SpecialValues::kNone, 0x7};

// A number apart: (-1)^negative * significand * 2^exponent where finite; zero has significand 0.
struct Unpacked {
  enum class Kind { kFinite, kInfinite, kNan };
  Kind kind = Kind::kFinite;
  bool negative = false;
  uint64_t significand = 0;
  int exponent = 0;

  bool is_nan() const { return kind == Kind::kNan; }
  bool is_zero() const { return kind == Kind::kFinite && significand == 0; }
};

// `bits` taken apart; the exponent is that of the last fraction bit, so the significand is exact.
Unpacked unpack(const FloatFormat& format, uint64_t bits);

// `value` rounded to `format`. Overflow gives infinity, NaN without one, or with `saturate` the largest finite value,
// which then also stands for infinities; rounding that never leaves the finite range stays in it.
uint64_t pack(const FloatFormat& format, const Unpacked& value, Rounding rounding, bool saturate = false);

// `value` rounded to an integer of unlimited range, as significand * 2^0 (or an exact larger exponent).
Unpacked round_to_integer(const Unpacked& value, Rounding rounding);

}  // namespace ptxrun::model

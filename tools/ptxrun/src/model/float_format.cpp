#include "model/float_format.h"

#include <algorithm>
#include <bit>

namespace ptxrun::model {
namespace {

/// Whether a magnitude that lost `remainder` of a last place worth 2 * `half` rounds away from zero.
bool rounds_up(Rounding rounding, bool negative, bool odd, uint64_t remainder, uint64_t half) {
  switch (rounding) {
    case Rounding::kNearestEven:
      return remainder > half || (remainder == half && odd);
    case Rounding::kNearestAway:
      return remainder >= half;
    case Rounding::kTowardZero:
      return false;
    case Rounding::kDown:
      return negative && remainder != 0;
    case Rounding::kUp:
      return !negative && remainder != 0;
  }
  return false;
}

/// `significand` / 2^shift rounded; shift > 0.
uint64_t shift_right_rounded(uint64_t significand, int shift, Rounding rounding, bool negative) {
  if (shift > 64) {  // less than half of the last place: keep it apart from zero only
    return rounds_up(rounding, negative, false, significand != 0 ? 1 : 0, 2) ? 1 : 0;
  }
  if (shift == 64) {
    return rounds_up(rounding, negative, false, significand, uint64_t{1} << 63) ? 1 : 0;
  }
  const uint64_t quotient = significand >> shift;
  const uint64_t remainder = significand & ((uint64_t{1} << shift) - 1);
  return quotient + (rounds_up(rounding, negative, quotient & 1, remainder, uint64_t{1} << (shift - 1)) ? 1 : 0);
}

// A magnitude beyond the finite range, with its sign. A NaN has none.
uint64_t pack_overflow(const FloatFormat& format, bool negative, Rounding rounding, bool saturate) {
  const uint64_t sign = negative ? format.sign_mask() : 0;
  const bool stays_finite = rounding == Rounding::kTowardZero || (rounding == Rounding::kDown && !negative) ||
                            (rounding == Rounding::kUp && negative);
  if (saturate || stays_finite || format.special == SpecialValues::kNone) return sign | format.max_finite();
  return format.special == SpecialValues::kIeee ? sign | format.infinity() : format.canonical_nan;
}

}  // namespace

Unpacked unpack(const FloatFormat& format, uint64_t bits) {
  Unpacked value;
  value.negative = (bits & format.sign_mask()) != 0;
  const uint64_t field = (bits >> format.fraction_bits) & format.exponent_field_max();
  const uint64_t fraction = bits & format.fraction_mask();
  if (field == format.exponent_field_max()) {
    if (format.special == SpecialValues::kIeee) {
      value.kind = fraction == 0 ? Unpacked::Kind::kInfinite : Unpacked::Kind::kNan;
      return value;
    }
    if (format.special == SpecialValues::kNanAllOnes && fraction == format.fraction_mask()) {
      value.kind = Unpacked::Kind::kNan;
      return value;
    }
  }
  value.significand = field == 0 ? fraction : fraction | (uint64_t{1} << format.fraction_bits);
  value.exponent = std::max<int>(static_cast<int>(field), 1) - format.bias - format.fraction_bits;
  return value;
}

uint64_t pack(const FloatFormat& format, const Unpacked& value, Rounding rounding, bool saturate) {
  if (value.is_nan()) return format.canonical_nan;
  const uint64_t sign = value.negative ? format.sign_mask() : 0;
  if (value.kind == Unpacked::Kind::kInfinite) {
    return pack_overflow(format, value.negative, Rounding::kNearestEven, saturate);
  }
  if (value.significand == 0) return sign;

  const int top = 63 - std::countl_zero(value.significand) + value.exponent;
  if (top > format.bias + 1) return pack_overflow(format, value.negative, rounding, saturate);
  const int exponent = std::max(top, format.min_exponent());
  const int shift = exponent - format.fraction_bits - value.exponent;
  const uint64_t rounded =
      shift > 0 ? shift_right_rounded(value.significand, shift, rounding, value.negative) : value.significand << -shift;
  // The hidden bit of a normal number adds one to the exponent field, as does a carry out of the fraction.
  const uint64_t magnitude =
      (static_cast<uint64_t>(exponent - format.min_exponent()) << format.fraction_bits) + rounded;
  if (magnitude > format.max_finite()) return pack_overflow(format, value.negative, rounding, saturate);
  return sign | magnitude;
}

Unpacked round_to_integer(const Unpacked& value, Rounding rounding) {
  if (value.kind != Unpacked::Kind::kFinite || value.exponent >= 0) return value;
  Unpacked rounded = value;
  rounded.significand = shift_right_rounded(value.significand, -value.exponent, rounding, value.negative);
  rounded.exponent = 0;
  return rounded;
}

}  // namespace ptxrun::model

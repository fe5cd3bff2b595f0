#include "model/conversions.h"

#include <algorithm>
#include <bit>

namespace ptxrun::model {
namespace {

constexpr int kUe8m0Bias = 127;

constexpr uint64_t width_mask(int width) { return width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1; }

int64_t sign_extend(uint64_t bits, int width) { return static_cast<int64_t>(bits << (64 - width)) >> (64 - width); }

bool is_subnormal(const FloatFormat& format, uint64_t bits) {
  return ((bits >> format.fraction_bits) & format.exponent_field_max()) == 0 && (bits & format.fraction_mask()) != 0;
}

// Bytes of two packed elements: the distance from the lower to the upper one, in bits.
int pair_shift(const FloatFormat& format) {
  if (format.width() == 4) return 4;
  return format.width() <= 8 ? 8 : format.width();
}

// f32 and f64 NaNs keep sign and the leading payload bits, with the quiet bit set.
uint64_t convert_wide_nan(const FloatFormat& to, const FloatFormat& from, uint64_t bits) {
  const int widen = to.fraction_bits - from.fraction_bits;
  const uint64_t payload = bits & from.fraction_mask();
  const uint64_t fraction = widen >= 0 ? payload << widen : payload >> -widen;
  const uint64_t sign = (bits & from.sign_mask()) != 0 ? to.sign_mask() : 0;
  return sign | to.infinity() | (uint64_t{1} << (to.fraction_bits - 1)) | fraction;
}

Unpacked from_integer(IntegerType from, uint64_t bits) {
  Unpacked value;
  if (from.is_signed) {
    const int64_t number = sign_extend(bits, from.width);
    value.negative = number < 0;
    value.significand = value.negative ? ~static_cast<uint64_t>(number) + 1 : static_cast<uint64_t>(number);
  } else {
    value.significand = bits & width_mask(from.width);
  }
  return value;
}

uint64_t clamp_magnitude(IntegerType to, bool negative, uint64_t magnitude) {
  const uint64_t sign_bit = uint64_t{1} << (to.width - 1);
  if (!to.is_signed) return negative ? 0 : std::min(magnitude, width_mask(to.width));
  if (negative) return (~std::min(magnitude, sign_bit) + 1) & width_mask(to.width);
  return std::min(magnitude, sign_bit - 1);
}

}  // namespace

uint64_t convert(const FloatFormat& to, const FloatFormat& from, uint64_t bits, const ConvertOptions& options) {
  Unpacked value = unpack(from, bits);
  if (options.flush_input && is_subnormal(from, bits)) value.significand = 0;
  if (options.saturate_unit) {
    if (value.is_nan() || value.negative) return 0;
    const uint64_t one = static_cast<uint64_t>(to.bias) << to.fraction_bits;
    return std::min(pack(to, value, options.rounding), one);
  }
  if (value.is_nan() && std::min(to.fraction_bits, from.fraction_bits) >= kF32.fraction_bits) {
    return convert_wide_nan(to, from, bits);
  }
  if (options.relu && value.negative && !value.is_nan()) return 0;
  const uint64_t result = pack(to, value, options.rounding, options.saturate_finite);
  return options.flush_result && is_subnormal(to, result) ? result & to.sign_mask() : result;
}

uint64_t convert_pair(const FloatFormat& to, const FloatFormat& from, uint64_t high, uint64_t low,
                      const ConvertOptions& options) {
  return (convert(to, from, high, options) << pair_shift(to)) | convert(to, from, low, options);
}

uint64_t convert_packed(const FloatFormat& to, const FloatFormat& from, uint64_t packed,
                        const ConvertOptions& options) {
  const uint64_t mask = width_mask(from.width());
  return convert_pair(to, from, (packed >> pair_shift(from)) & mask, packed & mask, options);
}

uint64_t float_to_integer(IntegerType to, const FloatFormat& from, uint64_t bits, Rounding rounding, bool flush_input) {
  Unpacked value = unpack(from, bits);
  if (value.is_nan()) return to.width == 64 || from.width() == 64 ? uint64_t{1} << (to.width - 1) : 0;
  if (value.kind == Unpacked::Kind::kInfinite) return clamp_magnitude(to, value.negative, ~uint64_t{0});
  if (flush_input && is_subnormal(from, bits)) value.significand = 0;
  const Unpacked rounded = round_to_integer(value, rounding);
  if (rounded.significand == 0) return 0;
  const bool overflows = rounded.exponent > std::countl_zero(rounded.significand);
  return clamp_magnitude(to, value.negative, overflows ? ~uint64_t{0} : rounded.significand << rounded.exponent);
}

uint64_t integer_to_float(const FloatFormat& to, IntegerType from, uint64_t bits, Rounding rounding) {
  return pack(to, from_integer(from, bits), rounding);
}

uint64_t round_to_integral(const FloatFormat& format, uint64_t bits, Rounding rounding) {
  const Unpacked value = unpack(format, bits);
  return value.is_nan() ? format.canonical_nan : pack(format, round_to_integer(value, rounding), rounding);
}

uint64_t integer_to_integer(IntegerType to, IntegerType from, uint64_t bits, bool saturate) {
  const Unpacked value = from_integer(from, bits);
  if (saturate) return clamp_magnitude(to, value.negative, value.significand);
  return (value.negative ? ~value.significand + 1 : value.significand) & width_mask(to.width);
}

uint8_t ue8m0_from(const FloatFormat& from, uint64_t bits, Rounding rounding, bool saturate_finite) {
  const Unpacked value = unpack(from, bits);
  if (value.is_nan()) return kUe8m0Nan;
  const uint8_t overflow = saturate_finite ? kUe8m0Nan - 1 : kUe8m0Nan;
  if (value.kind == Unpacked::Kind::kInfinite) return overflow;
  if (value.significand == 0) return 0;
  int exponent = 63 - std::countl_zero(value.significand) + value.exponent;
  if (rounding == Rounding::kUp && !std::has_single_bit(value.significand)) ++exponent;
  if (exponent > kUe8m0Bias) return overflow;
  return static_cast<uint8_t>(std::max(exponent + kUe8m0Bias, 0));
}

uint16_t bf16_from_ue8m0(uint8_t bits) {
  if (bits == kUe8m0Nan) return static_cast<uint16_t>(kBf16.canonical_nan);
  const Unpacked value{Unpacked::Kind::kFinite, false, 1, static_cast<int>(bits) - kUe8m0Bias};
  return static_cast<uint16_t>(pack(kBf16, value, Rounding::kNearestEven));
}

}  // namespace ptxrun::model

// The PTX cvt family, bit-exact for every input.
#pragma once

#include <cstdint>

#include "model/float_format.h"

namespace ptxrun::model {

struct ConvertOptions {
  Rounding rounding = Rounding::kNearestEven;
  bool saturate_finite = false;  // .satfinite
  bool relu = false;             // .relu: negative values become +0
  bool flush_input = false;      // .ftz of the source: subnormals become a zero of their sign
  bool flush_result = false;     // .ftz of the result
  bool saturate_unit = false;    // .sat: [+0, 1], NaN becomes +0
};

struct IntegerType {
  int width;  // 8, 16, 32 or 64
  bool is_signed;
};

// One element from format to format. NaN becomes the target's canonical NaN, except that f64 and f32 keep a NaN's
// payload, made quiet, between each other.
uint64_t convert(const FloatFormat& to, const FloatFormat& from, uint64_t bits, const ConvertOptions& options = {});

// Two elements, as the x2 forms pack them: `high` (the first source operand) goes to the upper half.
uint64_t convert_pair(const FloatFormat& to, const FloatFormat& from, uint64_t high, uint64_t low,
                      const ConvertOptions& options = {});

// Two packed elements to two packed elements, element by element (f16x2 from e4m3x2 and the like). Four-bit elements
// are packed in a byte; six-bit ones have a byte each.
uint64_t convert_packed(const FloatFormat& to, const FloatFormat& from, uint64_t packed,
                        const ConvertOptions& options = {});

// Out of range saturates. NaN becomes 0, or where source or target has 64 bits the pattern 1 << (width - 1).
uint64_t float_to_integer(IntegerType to, const FloatFormat& from, uint64_t bits, Rounding rounding,
                          bool flush_input = false);
uint64_t integer_to_float(const FloatFormat& to, IntegerType from, uint64_t bits, Rounding rounding);

// .rni, .rzi, .rmi, .rpi: an integral value in the same format, the sign of zero kept.
uint64_t round_to_integral(const FloatFormat& format, uint64_t bits, Rounding rounding);

// Integer to integer: truncation or extension, with .sat a clamp to the target's range. The result has `to.width` bits.
uint64_t integer_to_integer(IntegerType to, IntegerType from, uint64_t bits, bool saturate);

// ue8m0 holds 2^(bits - 127); 0xFF is NaN. The magnitude is rounded (.rz or .rp) and clipped to 2^-127 from below;
// above 2^127 it becomes NaN, or 2^127 with `saturate_finite`.
uint8_t ue8m0_from(const FloatFormat& from, uint64_t bits, Rounding rounding, bool saturate_finite);
uint16_t bf16_from_ue8m0(uint8_t bits);

inline constexpr uint8_t kUe8m0Nan = 0xFF;

}  // namespace ptxrun::model

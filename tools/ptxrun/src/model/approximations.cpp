#include "model/approximations.h"

#include <bit>
#include <cmath>

#include "model/conversions.h"

namespace ptxrun::model {
namespace {

constexpr double kLargeDivisor = 0x1p126;

double evaluate(UnaryFunction function, double x) {
  switch (function) {
    case UnaryFunction::kExp2:
      return std::exp2(x);
    case UnaryFunction::kReciprocal:
      return 1.0 / x;
    case UnaryFunction::kReciprocalSqrt:
      return 1.0 / std::sqrt(x);
    case UnaryFunction::kSqrt:
      return std::sqrt(x);
    case UnaryFunction::kLog2:
      return std::log2(x);
    case UnaryFunction::kSin:
      return std::sin(x);
    case UnaryFunction::kCos:
      return std::cos(x);
    case UnaryFunction::kTanh:
      return std::tanh(x);
  }
  return x;
}

uint64_t flush(const FloatFormat& format, uint64_t bits, bool ftz) {
  const bool subnormal = ((bits >> format.fraction_bits) & format.exponent_field_max()) == 0;
  return ftz && subnormal ? bits & format.sign_mask() : bits;
}

uint32_t divide(uint32_t a, uint32_t b, bool ftz) {
  const double quotient = to_double(kF32, flush(kF32, a, ftz)) / to_double(kF32, flush(kF32, b, ftz));
  return static_cast<uint32_t>(flush(kF32, from_double(kF32, quotient), ftz));
}

}  // namespace

double to_double(const FloatFormat& format, uint64_t bits) {
  return std::bit_cast<double>(convert(kF64, format, bits));
}

uint64_t from_double(const FloatFormat& format, double value, Rounding rounding) {
  if (std::isnan(value)) return format.canonical_nan;
  return convert(format, kF64, std::bit_cast<uint64_t>(value), {.rounding = rounding});
}

uint64_t approximate(UnaryFunction function, const FloatFormat& format, uint64_t bits, bool ftz) {
  const double x = to_double(format, flush(format, bits, ftz));
  return flush(format, from_double(format, evaluate(function, x)), ftz);
}

uint32_t divide_approx(uint32_t a, uint32_t b, bool ftz) {
  const double divisor = to_double(kF32, b);
  if (std::isfinite(divisor) && std::fabs(divisor) > kLargeDivisor) {
    const double dividend = to_double(kF32, a);
    if (!std::isfinite(dividend)) return static_cast<uint32_t>(kF32.canonical_nan);
    return (a ^ b) & static_cast<uint32_t>(kF32.sign_mask());
  }
  return divide(a, b, ftz);
}

uint32_t divide_full(uint32_t a, uint32_t b, bool ftz) { return divide(a, b, ftz); }

}  // namespace ptxrun::model

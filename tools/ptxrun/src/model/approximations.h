// The .approx functions of the PTX ISA.
//
// The hardware's tables are not published. Each function here is the exact result rounded to nearest even (by way of
// double precision, so that in rare cases a tie is decided wrongly: an error of at most 0.5000001 ulp), with the
// special values of the PTX ISA. The hardware's result may differ from it by the error that the ISA allows:
//
//   ex2.approx.f32           2 ulp (2^-22 relative)          rcp.approx.f32      1 ulp
//   rsqrt.approx.f32         2^-22.9 relative                sqrt.approx.f32     2^-23 relative
//   lg2.approx.f32           2^-22.6 absolute in [0.5, 2], 2^-22 relative elsewhere
//   sin/cos.approx.f32       2^-20.5 absolute in [-pi, pi]   tanh.approx.f32     2^-11 relative
//   div.approx.f32           2 ulp for |b| in [2^-126, 2^126]   div.full.f32     2 ulp
//   ex2.approx.f16/bf16      2^-9.9 / 2^-7 relative          tanh.approx.f16/bf16   2^-10.987 / 2^-8 absolute
//
// `ftz`: subnormal inputs and results become a zero of their sign.
#pragma once

#include <cstdint>

#include "model/float_format.h"

namespace ptxrun::model {

enum class UnaryFunction { kExp2, kReciprocal, kReciprocalSqrt, kSqrt, kLog2, kSin, kCos, kTanh };

// One element of `format` (f32, f16 or bf16; f64 for the ftz reciprocals).
uint64_t approximate(UnaryFunction function, const FloatFormat& format, uint64_t bits, bool ftz);

// div.approx.f32: a zero for 2^126 < |b| < infinity and finite a, NaN for infinite a there.
uint32_t divide_approx(uint32_t a, uint32_t b, bool ftz);
// div.full.f32: scaled, so the quotient over the whole range.
uint32_t divide_full(uint32_t a, uint32_t b, bool ftz);

// Exact values, for formats of at most 53 significand bits.
double to_double(const FloatFormat& format, uint64_t bits);
uint64_t from_double(const FloatFormat& format, double value, Rounding rounding = Rounding::kNearestEven);

}  // namespace ptxrun::model

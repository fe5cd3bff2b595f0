// SiTU: v = (b * tanh(g/b) * sigmoid(g)) * (l * tanh(u/l)), with a tanh and a sigmoid of our own, so that every backend
// gives the same bits. Both are branch-free and vectorise; errors against float64 stay within 4 ulp for every input
// (tests/unit/test_situ.py).
#pragma once

#include "numerics/fp32.h"
#if defined(__CUDA_ARCH__)
#include "kernels/ptx/approximate.cuh"
#include "kernels/ptx/minimum.cuh"
#endif

namespace cake_moe {
namespace detail {

inline constexpr float kLog2e = 1.44269502162933349609375f;
inline constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: a sum has the nearest integer in its low mantissa bits

// A choice by masks, since compilers branch over divisions and do not vectorise then.
CAKE_HD inline float choose(bool first, float a, float b) {
  const uint32_t mask = first ? ~0u : 0u;
  return bits_float((float_bits(a) & mask) | (float_bits(b) & ~mask));
}

// The nearest value in [0, 1]; a NaN may become 0.
CAKE_HD inline float saturate(float x) {
#if defined(__CUDA_ARCH__)
  return __saturatef(x);
#else
  return choose(x < 0.0f, 0.0f, choose(x > 1.0f, 1.0f, x));
#endif
}

// e^x as power * mantissa, with power = 2^(k + shift) and k the integer nearest to x / ln(2), but no further than power
// can be 0 or 2^127: there the mantissa grows or falls as a polynomial does.
struct Exp {
  float power, mantissa;
};

CAKE_HD inline Exp reduce_exp(float x, float shift) {
  constexpr float kLn2High = 0.693145751953125f;  // 16 significant bits: k * kLn2High is exact
  constexpr float kLn2Low = 1.42860677e-6f;
  constexpr float kPowers = 254.0f;  // from 2^-127, which its bits make 0, to 2^127
  const float bias = add_rn(shift, 127.0f);
  const float part = saturate(fma_rn(x, kLog2e / kPowers, mul_rn(bias, 1.0f / kPowers)));
  const float shifted = fma_rn(part, kPowers, kRound);
  const float k = sub_rn(shifted, add_rn(kRound, bias));
  const float f = fma_rn(k, -kLn2Low, fma_rn(k, -kLn2High, x));
  // Minimax for e^f with a constant term of 1, relative error 9.2e-8.
  float p = fma_rn(8.290302939713001e-3f, f, 4.189798980951309e-2f);
  p = fma_rn(p, f, 0.1666763722896576f);
  p = fma_rn(p, f, 0.4999914765357971f);
  p = fma_rn(p, f, 0.9999997019767761f);
  return {bits_float(float_bits(shifted) << 23), fma_rn(p, f, 1.0f)};
}

// Correctly rounded 1/d for d in [1, 2^126) (or NaN); of larger ones 0 or NaN on the GPU.
CAKE_HD inline float reciprocal(float d) {
#if defined(__CUDA_ARCH__)
  // The steps of the compiler's own rcp.rn, which takes them up to there.
  const float r = ptx::rcp_approx(d);
  return fma_rn(r, fma_rn(-d, r, 1.0f), r);
#else
  return div_rn(1.0f, d);
#endif
}

// The smaller of two values; a NaN in x survives. `limit` is a number.
CAKE_HD inline float at_most(float x, float limit) {
#if defined(__CUDA_ARCH__)
  return ptx::min_nan(x, limit);  // one instruction, which takes |x| too
#else
  return choose(x > limit, limit, x);
#endif
}

// -tanh(x / 2) = m / (2 + m) with m = expm1(-x), for x in 0..20 (or NaN); from x = 19 on the result is -1.
CAKE_HD inline float minus_tanh_of_half(float x) {
  constexpr float kLn2 = 0.693147182464599609375f;  // alone: -k * (kLn2 - ln 2) * 2^k is at most 1e-9
  const float shifted = fma_rn(-x, kLog2e, kRound);
  const float k = sub_rn(shifted, kRound);
  const float f = fma_rn(k, -kLn2, -x);
  // Minimax for (expm1(f) - f) / f^2, relative error of expm1 1.4e-8.
  float p = fma_rn(1.39466708060354e-3f, f, 8.366710506379604e-3f);
  p = fma_rn(p, f, 4.166628047823906e-2f);
  p = fma_rn(p, f, 1.6666541993618011e-1f);
  p = fma_rn(p, f, 0.5f);
  const float q = fma_rn(mul_rn(p, f), f, f);  // expm1(f)
  const float power = bits_float((float_bits(shifted) << 23) + 0x3F800000u);
  const float m = fma_rn(power, q, sub_rn(power, 1.0f));
  return mul_rn(m, reciprocal(add_rn(2.0f, m)));
}

inline constexpr float kLeastSigmoid = -80.0f;  // argument; from here on 1 + e^-z is far from overflow

// 1 / (1 + e^-z) for z in kLeastSigmoid..2^24 (or NaN).
CAKE_HD inline float sigmoid_of_normal(float z) {
  const Exp e = reduce_exp(-z, 0.0f);
  return reciprocal(fma_rn(e.power, e.mantissa, 1.0f));
}

}  // namespace detail

CAKE_HD inline float situ_tanh(float z) {
  const float t = detail::minus_tanh_of_half(mul_rn(detail::at_most(abs_bits(z), 10.0f), 2.0f));
  return bits_float(float_bits(abs_bits(t)) | (float_bits(z) & 0x80000000u));
}

// Below kLeastSigmoid the sum 1 + e^z is 1, and results are subnormal in the end: e^z with a larger power, scaled back.
CAKE_HD inline float situ_sigmoid(float z) {
  const bool low = float_bits(z) > float_bits(detail::kLeastSigmoid);  // or a NaN with a sign
  const float x = detail::choose(low, z, -z);
  const detail::Exp e = detail::reduce_exp(detail::choose(x < -110.0f, -110.0f, x), detail::choose(low, 64.0f, 0.0f));
  const float y = mul_rn(mul_rn(e.power, e.mantissa), 5.42101086242752217e-20f);  // 2^-64
  return detail::choose(low, y, detail::reciprocal(fma_rn(e.power, e.mantissa, 1.0f)));
}

// g and u are raw accumulators of the gate and the up row, a = dX*dW13, b and l the expert's betas. The sigmoid reads
// the uncapped gate.
CAKE_HD inline float situ(float g, float u, float a, float b, float l) {
  const float gs = mul_rn(g, a);
  const float us = mul_rn(u, a);
  const float p = mul_rn(b, situ_tanh(div_rn(gs, b)));
  const float q = mul_rn(l, situ_tanh(div_rn(us, l)));
  return mul_rn(mul_rn(p, situ_sigmoid(gs)), q);
}

}  // namespace cake_moe

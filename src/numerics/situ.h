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

// expm1 of x <= 0 as 2^k * (1 + q) - 1, |f| <= ln(2)/2 and q = expm1(f). x must lie above -126 * ln(2) - 64 * ln(2).
struct Expm1 {
  float q;
  uint32_t k;  // two's complement, in -190..0
};

CAKE_HD inline Expm1 reduce_expm1(float x) {
  constexpr float kLog2e = 1.44269502162933349609375f;
  constexpr float kLn2High = 0.693145751953125f;  // 16 significant bits: k * kLn2High is exact
  constexpr float kLn2Low = 1.42860677e-6f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low mantissa bits
  const float shifted = fma_rn(x, kLog2e, kRound);
  const float k = sub_rn(shifted, kRound);
  const float f = fma_rn(k, -kLn2Low, fma_rn(k, -kLn2High, x));
  // Minimax for (expm1(f) - f) / f^2, relative error of expm1 1.4e-8.
  float p = fma_rn(1.39466708060354e-3f, f, 8.366710506379604e-3f);
  p = fma_rn(p, f, 4.166628047823906e-2f);
  p = fma_rn(p, f, 1.6666541993618011e-1f);
  p = fma_rn(p, f, 0.5f);
  return {fma_rn(mul_rn(p, f), f, f), float_bits(shifted) - 0x4B400000u};
}

// Correctly rounded 1/d for d in [1, 2] (or NaN).
CAKE_HD inline float reciprocal_1_2(float d) {
#if defined(__CUDA_ARCH__)
  const float r = ptx::rcp_approx(d);  // the steps of the compiler's own rcp.rn, which checks the range of d first
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
  return x > limit ? limit : x;
#endif
}

// -tanh(x / 2) = m / (2 + m) with m = expm1(-x), for x in 0..180 (or NaN); from x = 20 on the result is -1.
CAKE_HD inline float minus_tanh_of_half(float x) {
  const Expm1 e = reduce_expm1(-x);
  const float scale = bits_float((e.k << 23) + 0x3F800000u);
  const float m = fma_rn(scale, e.q, sub_rn(scale, 1.0f));
  return mul_rn(m, reciprocal_1_2(add_rn(2.0f, m)));
}

}  // namespace detail

CAKE_HD inline float situ_tanh(float z) {
  const float t = detail::minus_tanh_of_half(mul_rn(detail::at_most(abs_bits(z), 10.0f), 2.0f));
  return bits_float(float_bits(abs_bits(t)) | (float_bits(z) & 0x80000000u));
}

// e = exp(-|z|); 1 / (1 + e) for z >= 0 and e / (1 + e) below.
CAKE_HD inline float situ_sigmoid(float z) {
  const float a = detail::at_most(abs_bits(z), 110.0f);
  const detail::Expm1 e = detail::reduce_expm1(-a);
  // 2^k in two steps, since results below 2^-126 are subnormal.
  const float scale = bits_float((e.k << 23) + (191u << 23));
  const float x = mul_rn(fma_rn(scale, e.q, scale), 5.42101086242752217e-20f);  // 2^-64
  const float r = detail::reciprocal_1_2(add_rn(1.0f, x));
  return float_bits(z) >> 31 ? mul_rn(x, r) : r;
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

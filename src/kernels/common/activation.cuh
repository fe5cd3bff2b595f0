// SiTU with the bits of numerics/situ.h, without its two divisions: an expert's betas divide every value, so each
// division becomes a product with the divisor's reciprocal and two exact corrections.
#pragma once

#include <cstdint>

#include "numerics/situ.h"

namespace cake_moe {

// Correctly rounded n / d. With r = RN(1 / d), q = n * r is within two ulp; one correction makes it faithful, and a
// second one rounds it correctly (Markstein 1990), while every residual n - q * d is exact: n, d and the quotient must
// be far from the ends of the exponent range.
struct Divisor {
  float d, r;

  __device__ explicit Divisor(float divisor) : d(divisor), r(div_rn(1.0f, divisor)) {}
  __device__ bool regular() const { return abs_bits(d) > 0x1p-30f && abs_bits(d) < 0x1p30f; }
  __device__ __forceinline__ float quotient(float n) const {
    float q = mul_rn(n, r);
    q = fma_rn(fma_rn(-q, d, n), r, q);
    return fma_rn(fma_rn(-q, d, n), r, q);
  }
};

// Beyond 2^60 a quotient by a regular divisor exceeds every argument at which tanh still changes; a NaN stays.
__device__ __forceinline__ float clamp_dividend(float n) {
  return abs_bits(n) > 0x1p60f ? bits_float(float_bits(n) & 0x80000000u | 0x5D800000u) : n;
}

// What an expert's activation needs from memory.
struct Constants {
  float alpha, encode, beta, linear_beta;

  // Args: pointers of those names, one value an expert.
  template <typename Args>
  __device__ Constants(const Args& args, int expert)
      : alpha(__ldg(&args.alpha[expert])),
        encode(__ldg(&args.encode[expert])),
        beta(__ldg(&args.beta[expert])),
        linear_beta(__ldg(&args.linear_beta[expert])) {}
};

// SiTU of raw accumulators that carry 1 / unshift, a power of two.
struct Activation {
  float unshift, alpha, shifted_alpha, encode;
  Divisor beta, linear_beta;

  __device__ Activation(const Constants& c, float unshift_)
      : unshift(unshift_),
        alpha(c.alpha),
        shifted_alpha(alpha * unshift_),
        encode(c.encode),
        beta(c.beta),
        linear_beta(c.linear_beta) {}

  // Where *regular becomes false, the result is void.
  __device__ __forceinline__ float operator()(float g, float u, bool* regular) const {
    const float gs = mul_rn(g, shifted_alpha), us = mul_rn(u, shifted_alpha);
    *regular &= !(abs_bits(gs) < 0x1p-60f) && !(abs_bits(us) < 0x1p-60f);
    return situ_from_quotients(gs, beta.quotient(clamp_dividend(gs)), linear_beta.quotient(clamp_dividend(us)), beta.d,
                               linear_beta.d);
  }
  // The same for any values.
  __device__ __forceinline__ float exact(float g, float u) const {
    return situ(g * unshift, u * unshift, alpha, beta.d, linear_beta.d);
  }
};

}  // namespace cake_moe

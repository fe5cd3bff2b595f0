// SiTU with the bits of numerics/situ.h, without its two divisions: an expert's betas divide every value, so each
// division becomes a product with the divisor's reciprocal and an exact correction.
#pragma once

#include <cstdint>

#include "numerics/nvfp4.h"
#include "numerics/situ.h"

namespace cake_moe {

// A beta: magnitudes of n / d, and what SiTU makes of them.
struct Divisor {
  float d;
  float magnitude, half, r;  // |d|; |d| / 2 and its reciprocal: quotients come out doubled
  float limit;               // from here on the tanh of the quotient is 1; a number where d is regular

  __device__ explicit Divisor(float divisor)
      : d(divisor),
        magnitude(abs_bits(divisor)),
        half(mul_rn(0.5f, magnitude)),
        r(div_rn(1.0f, half)),
        limit(mul_rn(10.0f, magnitude)) {}
  __device__ bool regular() const { return magnitude > 0x1p-30f && magnitude < 0x1p30f; }

  // -|d| * tanh(|n / d|) for a regular d and 2^-60 <= |n| (or NaN). The quotient is correctly rounded: the product with
  // r = RN(2 / |d|) is less than 1.5 ulp off, and one correction rounds it, with a residual that is exact where a
  // rounding is close (docs/numerics.md), for n, d and the quotient are far from the ends of the exponent range.
  __device__ __forceinline__ float capped(float n) const {
    const float a = detail::at_most(fabsf(n), limit);
    const float q = mul_rn(a, r);
    return mul_rn(magnitude, detail::minus_tanh_of_half(fma_rn(fma_rn(-q, half, a), r, q)));
  }
};

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
  __device__ Constants(float alpha_, float encode_, float beta_, float linear_beta_)
      : alpha(alpha_), encode(encode_), beta(beta_), linear_beta(linear_beta_) {}
};

// SiTU of raw accumulators that carry 1 / unshift, a power of two up to 1.
struct Activation {
  float scale, rest;  // alpha: accumulators times scale, which is exact where rest is not 1, times rest
  float encode;
  Divisor beta, linear_beta;
  float least;  // of the magnitudes that are regular; NaN: none is

  __device__ Activation(const Constants& c, float unshift)
      : scale(c.alpha * unshift), rest(1.0f), encode(c.encode), beta(c.beta), linear_beta(c.linear_beta) {
    least = 0x1p-59f * fmaxf(beta.magnitude, linear_beta.magnitude);
    const bool finite = fabsf(scale) <= kFloatMax;
    if (!finite) scale = unshift, rest = c.alpha;
    if (!finite || !beta.regular() || !linear_beta.regular()) least = bits_float(0x7FFFFFFFu);
  }
  __device__ __forceinline__ float scaled(float accumulator) const { return mul_rn(accumulator, scale); }

  // A factor |d| * tanh(n / d) with |n| < 2^-60 is below 2^-59, be its quotient rounded or not, and the others are at
  // most the other beta and 1: such a result is never regular. Nor is that of a sigmoid below e^-80, times two betas
  // below 2^30, nor NaN, which a gate beyond the sigmoid's range gives.
  __device__ __forceinline__ bool regular(float v) const { return fabsf(v) >= least; }

  // Of scaled accumulators; void unless regular.
  __device__ __forceinline__ float operator()(float gs, float us) const {
    // b * T(gs / b) has the sign of gs, whatever the sign of b; two minuses make a magnitude.
    const float v = mul_rn(mul_rn(beta.capped(gs), detail::sigmoid_of_normal(gs)), linear_beta.capped(us));
    return bits_float(float_bits(v) | ((float_bits(gs) ^ float_bits(us)) & 0x80000000u));
  }
  // The same for any values.
  __device__ __forceinline__ float exact(float gs, float us) const { return situ(gs, us, rest, beta.d, linear_beta.d); }
};

}  // namespace cake_moe

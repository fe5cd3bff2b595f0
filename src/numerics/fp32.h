// Single roundings with a name. The same expression gives the same bits in host and device code: no contraction, no
// flush to zero, no approximate instruction. Host files are compiled with -ffp-contract=off.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define CAKE_HD __host__ __device__
#else
// Never emitted as a function of its own: host files are compiled for several instruction sets, and the linker would
// keep one of the copies for all of them.
#define CAKE_HD [[gnu::always_inline]]
#endif

namespace cake_moe {

#if defined(__CUDA_ARCH__)
CAKE_HD inline float mul_rn(float a, float b) { return __fmul_rn(a, b); }
CAKE_HD inline float add_rn(float a, float b) { return __fadd_rn(a, b); }
CAKE_HD inline float sub_rn(float a, float b) { return __fsub_rn(a, b); }
CAKE_HD inline float div_rn(float a, float b) { return __fdiv_rn(a, b); }
CAKE_HD inline float fma_rn(float a, float b, float c) { return __fmaf_rn(a, b, c); }
CAKE_HD inline uint32_t float_bits(float x) { return __float_as_uint(x); }
CAKE_HD inline float bits_float(uint32_t u) { return __uint_as_float(u); }
#else
CAKE_HD inline float mul_rn(float a, float b) { return a * b; }
CAKE_HD inline float add_rn(float a, float b) { return a + b; }
CAKE_HD inline float sub_rn(float a, float b) { return a - b; }
CAKE_HD inline float div_rn(float a, float b) { return a / b; }
CAKE_HD inline float fma_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
CAKE_HD inline uint32_t float_bits(float x) { return __builtin_bit_cast(uint32_t, x); }
CAKE_HD inline float bits_float(uint32_t u) { return __builtin_bit_cast(float, u); }
#endif

CAKE_HD inline float abs_bits(float x) { return bits_float(float_bits(x) & 0x7FFFFFFFu); }
CAKE_HD inline bool is_nan(float x) { return (float_bits(x) & 0x7FFFFFFFu) > 0x7F800000u; }

// Larger of two magnitudes (both with a clear sign bit), NaN if either is NaN: for such floats the order of the bits
// is the order of the values, and every NaN lies above infinity.
CAKE_HD inline float max_magnitude(float a, float b) {
  return bits_float(float_bits(a) > float_bits(b) ? float_bits(a) : float_bits(b));
}

CAKE_HD inline float bf16_to_float(uint16_t x) { return bits_float(static_cast<uint32_t>(x) << 16); }

// Round to nearest even; every NaN becomes the canonical 0x7FFF, as cvt.rn.bf16.f32 gives.
CAKE_HD inline uint16_t float_to_bf16(float x) {
  const uint32_t u = float_bits(x);
  const uint32_t rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
  return static_cast<uint16_t>(is_nan(x) ? 0x7FFFu : rounded);
}

}  // namespace cake_moe

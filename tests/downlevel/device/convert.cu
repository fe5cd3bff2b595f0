// Conversions that sm_90a lacks, as functions that rewritten PTX calls.
#include <cstdint>

// Code of the e2m1 value nearest to x: ties to an even code, saturating at 6, NaN gives +6.
static __device__ uint32_t e2m1(float x) {
  const float magnitude = fabsf(x);
  // Between two neighbours lies a tie, which belongs to the code that is even.
  const uint32_t code = (magnitude > 0.25f) + (magnitude >= 0.75f) + (magnitude > 1.25f) + (magnitude >= 1.75f) +
                        (magnitude > 2.5f) + (magnitude >= 3.5f) + (magnitude > 5.0f);
  return isnan(x) ? 7 : code | (__float_as_uint(x) >> 31) << 3;
}

// cvt.rn.satfinite.e2m1x2.f32: the first operand takes the high nibble.
extern "C" __device__ __noinline__ uint8_t downlevel_cvt_e2m1x2(float high, float low) {
  return static_cast<uint8_t>(e2m1(high) << 4 | e2m1(low));
}

// One lane of floating-point arithmetic: flushing, saturation, the NaN that PTX gives.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace ptxrun {

inline float canonical_nan() { return std::bit_cast<float>(0x7FFFFFFFu); }

inline float flush(float x) { return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x; }

template <bool kFtz>
inline float input(float x) {
  return kFtz ? flush(x) : x;
}

template <bool kFtz, bool kSat>
inline float result(float x) {
  if (kFtz) x = flush(x);
  if (kSat) return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;  // NaN gives +0
  return x != x ? canonical_nan() : x;
}

inline float result(float x, bool ftz, bool sat) {
  if (ftz) return sat ? result<true, true>(x) : result<true, false>(x);
  return sat ? result<false, true>(x) : result<false, false>(x);
}

}  // namespace ptxrun

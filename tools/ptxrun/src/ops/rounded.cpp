// Compiled with -frounding-math: the processor's rounding mode is changed around single operations.
#include <cfenv>
#include <cmath>

#include "ops/float.h"

namespace ptxrun {
namespace {

int mode(model::Rounding rounding) {
  switch (rounding) {
    case model::Rounding::kTowardZero:
      return FE_TOWARDZERO;
    case model::Rounding::kDown:
      return FE_DOWNWARD;
    case model::Rounding::kUp:
      return FE_UPWARD;
    default:
      return FE_TONEAREST;
  }
}

class RoundingMode {
 public:
  explicit RoundingMode(model::Rounding rounding) { std::fesetround(mode(rounding)); }
  ~RoundingMode() { std::fesetround(FE_TONEAREST); }
};

template <class T>
T binary(FloatBinary op, T x, T y, model::Rounding rounding) {
  const RoundingMode scope(rounding);
  // volatile: the operation must not move out of the scope.
  volatile T a = x, b = y, result;
  switch (op) {
    case FloatBinary::Add:
      result = a + b;
      break;
    case FloatBinary::Sub:
      result = a - b;
      break;
    case FloatBinary::Mul:
      result = a * b;
      break;
    default:
      result = a / b;
  }
  return result;
}

template <class T>
T fused(T x, T y, T z, model::Rounding rounding) {
  const RoundingMode scope(rounding);
  volatile T a = x, b = y, c = z;
  volatile T result = std::fma(a, b, c);
  return result;
}

template <class T>
T root(T x, model::Rounding rounding) {
  const RoundingMode scope(rounding);
  volatile T a = x;
  volatile T result = std::sqrt(a);
  return result;
}

}  // namespace

float rounded_binary(FloatBinary op, float a, float b, model::Rounding r) { return binary<float>(op, a, b, r); }
double rounded_binary(FloatBinary op, double a, double b, model::Rounding r) { return binary<double>(op, a, b, r); }
float rounded_fma(float a, float b, float c, model::Rounding r) { return fused<float>(a, b, c, r); }
double rounded_fma(double a, double b, double c, model::Rounding r) { return fused<double>(a, b, c, r); }
float rounded_sqrt(float a, model::Rounding r) { return root<float>(a, r); }
double rounded_sqrt(double a, model::Rounding r) { return root<double>(a, r); }

}  // namespace ptxrun

// f32, f64 and f32x2: add, sub, mul, fma, div, neg, abs, min, max, copysign, testp.
#include "ops/float.h"

#include "model/approximations.h"
#include "ops/float_lane.h"
#include "ops/lanes.h"

namespace ptxrun {
namespace {

using model::Rounding;

template <FloatBinary kOp, class T>
T apply(T a, T b) {
  if constexpr (kOp == FloatBinary::Add) return a + b;
  if constexpr (kOp == FloatBinary::Sub) return a - b;
  if constexpr (kOp == FloatBinary::Mul) return a * b;
  return a / b;
}

// A pair is 2 x 32 floats in a row of 64 bits: the two of a lane lie side by side.
template <bool kPair, class F>
void for_elements(LaneMask active, F&& f) {
  map_lanes(active, [&](int lane) {
    if constexpr (kPair) {
      f(2 * lane);
      f(2 * lane + 1);
    } else {
      f(lane);
    }
  });
}

template <FloatBinary kOp, bool kPair, bool kFtz, bool kSat>
Step run_binary(Warp& warp, const Instr& instr, LaneMask active) {
  const float* a = warp.in<float>(instr.op(1));
  const float* b = warp.in<float>(instr.op(2));
  float* d = warp.out<float>(instr.op(0));
  for_elements<kPair>(active,
                      [&](int i) { d[i] = result<kFtz, kSat>(apply<kOp>(input<kFtz>(a[i]), input<kFtz>(b[i]))); });
  return Step::Next;
}

template <bool kPair>
Step run_binary_rounded(Warp& warp, const Instr& instr, LaneMask active) {
  const auto& mods = instr.mods<FloatModifiers>();
  const float* a = warp.in<float>(instr.op(1));
  const float* b = warp.in<float>(instr.op(2));
  float* d = warp.out<float>(instr.op(0));
  for_elements<kPair>(active, [&](int i) {
    const float x = mods.ftz ? flush(a[i]) : a[i], y = mods.ftz ? flush(b[i]) : b[i];
    d[i] = result(rounded_binary(mods.op, x, y, mods.rounding), mods.ftz, mods.sat);
  });
  return Step::Next;
}

Step run_binary_f64(Warp& warp, const Instr& instr, LaneMask active) {
  const auto& mods = instr.mods<FloatModifiers>();
  const double* a = warp.in<double>(instr.op(1));
  const double* b = warp.in<double>(instr.op(2));
  double* d = warp.out<double>(instr.op(0));
  for_lanes(active, [&](int lane) { d[lane] = rounded_binary(mods.op, a[lane], b[lane], mods.rounding); });
  return Step::Next;
}

template <FloatBinary kOp>
Handler binary_handler(bool pair, const FloatModifiers& mods) {
  if (mods.rounding != Rounding::kNearestEven) return pair ? run_binary_rounded<true> : run_binary_rounded<false>;
  Handler handler = nullptr;
  with_flags(mods.ftz, mods.sat, [&]<bool kFtz, bool kSat>() {
    handler = pair ? run_binary<kOp, true, kFtz, kSat> : run_binary<kOp, false, kFtz, kSat>;
  });
  return handler;
}

Handler binary_handler(FloatBinary op, bool pair, const FloatModifiers& mods) {
  switch (op) {
    case FloatBinary::Add:
      return binary_handler<FloatBinary::Add>(pair, mods);
    case FloatBinary::Sub:
      return binary_handler<FloatBinary::Sub>(pair, mods);
    case FloatBinary::Mul:
      return binary_handler<FloatBinary::Mul>(pair, mods);
    default:
      return binary_handler<FloatBinary::Div>(pair, mods);
  }
}

template <bool kPair, bool kFtz, bool kSat>
Step run_fma(Warp& warp, const Instr& instr, LaneMask active) {
  const float* a = warp.in<float>(instr.op(1));
  const float* b = warp.in<float>(instr.op(2));
  const float* c = warp.in<float>(instr.op(3));
  float* d = warp.out<float>(instr.op(0));
  for_elements<kPair>(active, [&](int i) {
    d[i] = result<kFtz, kSat>(std::fma(input<kFtz>(a[i]), input<kFtz>(b[i]), input<kFtz>(c[i])));
  });
  return Step::Next;
}

template <bool kPair>
Step run_fma_rounded(Warp& warp, const Instr& instr, LaneMask active) {
  const auto& mods = instr.mods<FloatModifiers>();
  const float* a = warp.in<float>(instr.op(1));
  const float* b = warp.in<float>(instr.op(2));
  const float* c = warp.in<float>(instr.op(3));
  float* d = warp.out<float>(instr.op(0));
  const auto in = [&](float x) { return mods.ftz ? flush(x) : x; };
  for_elements<kPair>(active, [&](int i) {
    d[i] = result(rounded_fma(in(a[i]), in(b[i]), in(c[i]), mods.rounding), mods.ftz, mods.sat);
  });
  return Step::Next;
}

Step run_fma_f64(Warp& warp, const Instr& instr, LaneMask active) {
  const auto& mods = instr.mods<FloatModifiers>();
  const double* a = warp.in<double>(instr.op(1));
  const double* b = warp.in<double>(instr.op(2));
  const double* c = warp.in<double>(instr.op(3));
  double* d = warp.out<double>(instr.op(0));
  for_lanes(active, [&](int lane) { d[lane] = rounded_fma(a[lane], b[lane], c[lane], mods.rounding); });
  return Step::Next;
}

// div.approx, div.full --------------------------------------------------------------------------------------------

template <auto kFunction, bool kFtz>
Step run_approximate_div(Warp& warp, const Instr& instr, LaneMask active) {
  return map2<uint32_t, uint32_t, uint32_t, [](uint32_t a, uint32_t b) { return kFunction(a, b, kFtz); }>(warp, instr,
                                                                                                          active);
}

// min, max --------------------------------------------------------------------------------------------------------

struct MinMaxModifiers {
  bool is_max, ftz, nan, xorsign_abs;
  uint8_t sources;
};

// -0 is below +0; of a number and a NaN the number is taken unless .NaN.
template <class T>
T choose(T a, T b, bool is_max, bool nan) {
  if (a != a || b != b) {
    if (nan || (a != a && b != b)) return std::numeric_limits<T>::quiet_NaN();
    return a != a ? b : a;
  }
  if (a == b) return std::signbit(a) == is_max ? b : a;
  return (a < b) == is_max ? b : a;
}

Step run_min_max_f32(Warp& warp, const Instr& instr, LaneMask active) {
  const auto& mods = instr.mods<MinMaxModifiers>();
  const float* sources[3] = {};
  for (int i = 0; i < mods.sources; ++i) sources[i] = warp.in<float>(instr.op(1 + i));
  float* d = warp.out<float>(instr.op(0));
  for_lanes(active, [&](int lane) {
    uint32_t signs = 0;
    float best = 0;
    for (int i = 0; i < mods.sources; ++i) {
      float x = mods.ftz ? flush(sources[i][lane]) : sources[i][lane];
      signs ^= std::bit_cast<uint32_t>(x);
      if (mods.xorsign_abs) x = std::fabs(x);
      best = i == 0 ? x : choose(best, x, mods.is_max, mods.nan);
    }
    best = result(best, false, false);
    if (mods.xorsign_abs && best == best) best = std::copysign(best, signs >> 31 ? -1.0f : 1.0f);
    d[lane] = best;
  });
  return Step::Next;
}

Step run_min_max_f64(Warp& warp, const Instr& instr, LaneMask active) {
  const auto& mods = instr.mods<MinMaxModifiers>();
  const double* a = warp.in<double>(instr.op(1));
  const double* b = warp.in<double>(instr.op(2));
  double* d = warp.out<double>(instr.op(0));
  for_lanes(active, [&](int lane) { d[lane] = choose(a[lane], b[lane], mods.is_max, false); });
  return Step::Next;
}

// sign ------------------------------------------------------------------------------------------------------------

template <FloatSign kSign, bool kFtz>
float change_sign(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(input<kFtz>(x));
  return std::bit_cast<float>(kSign == FloatSign::Neg ? bits ^ 0x80000000u : bits & 0x7FFFFFFFu);
}

template <class T, T kMask, FloatSign kSign>
Step run_sign_bits(Warp& warp, const Instr& instr, LaneMask active) {
  return map1<T, T, [](T a) { return static_cast<T>(kSign == FloatSign::Neg ? a ^ kMask : a & ~kMask); }>(warp, instr,
                                                                                                          active);
}

template <FloatSign kSign>
Handler sign_handler(Type type, bool ftz) {
  switch (type) {
    case Type::F32:
      return ftz ? map1<float, float, change_sign<kSign, true>> : map1<float, float, change_sign<kSign, false>>;
    case Type::F64:
      return run_sign_bits<uint64_t, uint64_t{1} << 63, kSign>;
    case Type::F32x2:
      return run_sign_bits<uint64_t, 0x8000'0000'8000'0000, kSign>;
    case Type::F16x2:
    case Type::BF16x2:
      return run_sign_bits<uint32_t, 0x8000'8000, kSign>;
    default:
      return run_sign_bits<uint16_t, 0x8000, kSign>;
  }
}

// copysign, testp -------------------------------------------------------------------------------------------------

void decode_copysign(Decoder& d, Instr& out) {
  out.op_class = OpClass::Fp;
  const Type type = d.modifiers().take_type();
  if (type != Type::F32 && type != Type::F64) d.unknown();
  // d = b with the sign of a.
  out.handler = type == Type::F32
                    ? map2<float, float, float, [](float a, float b) { return std::copysign(b, a); }>
                    : map2<double, double, double, [](double a, double b) { return std::copysign(b, a); }>;
  decode_map(d, type_bits(type), type_bits(type), 2);
}

enum class Property : uint8_t { Finite, Infinite, Number, NotANumber, Normal, Subnormal };

bool has_property(double x, bool subnormal, Property property) {
  switch (property) {
    case Property::Finite:
      return std::isfinite(x);
    case Property::Infinite:
      return std::isinf(x);
    case Property::Number:
      return x == x;
    case Property::NotANumber:
      return x != x;
    case Property::Normal:
      return std::isfinite(x) && x != 0 && !subnormal;
    default:
      return subnormal;
  }
}

template <class T>
Step run_testp(Warp& warp, const Instr& instr, LaneMask active) {
  const T* a = warp.in<T>(instr.op(1));
  LaneMask holds = 0;
  for_lanes(active, [&](int lane) {
    const bool subnormal = std::fpclassify(a[lane]) == FP_SUBNORMAL;
    if (has_property(a[lane], subnormal, instr.mods<Property>())) holds |= LaneMask{1} << lane;
  });
  warp.set_predicate(instr.op(0), holds, active);
  return Step::Next;
}

void decode_testp(Decoder& d, Instr& out) {
  out.op_class = OpClass::Fp;
  const int property = d.modifiers().take_one({"finite", "infinite", "number", "notanumber", "normal", "subnormal"});
  const Type type = d.modifiers().take_type();
  if (property < 0 || (type != Type::F32 && type != Type::F64)) d.unknown();
  out.set_mods(static_cast<Property>(property));
  out.handler = type == Type::F32 ? run_testp<float> : run_testp<double>;
  d.write_predicate(d.operand(0));
  d.read(d.operand(1), type_bits(type));
  d.finish(2);
}

void decode_fma(Decoder& d, Instr& out) { decode_float_fma(d, out, d.modifiers().take_type()); }

const Family families[] = {{"fma", decode_fma}, {"copysign", decode_copysign}, {"testp", decode_testp}};

}  // namespace

FloatModifiers take_float_modifiers(Decoder& d) {
  FloatModifiers mods;
  const int rounding = d.modifiers().take_one({"rn", "rz", "rm", "rp"});
  constexpr Rounding kModes[] = {Rounding::kNearestEven, Rounding::kTowardZero, Rounding::kDown, Rounding::kUp};
  if (rounding > 0) mods.rounding = kModes[rounding];
  mods.ftz = d.modifiers().take("ftz");
  mods.sat = d.modifiers().take("sat");
  return mods;
}

void decode_float_binary(Decoder& d, Instr& out, Type type, FloatBinary op) {
  out.op_class = OpClass::Fp;
  if (is_half(type)) return decode_half_binary(d, out, type, op);
  FloatModifiers mods = take_float_modifiers(d);
  mods.op = op;
  out.set_mods(mods);
  out.handler = type == Type::F64 ? run_binary_f64 : binary_handler(op, type == Type::F32x2, mods);
  decode_map(d, type_bits(type), type_bits(type), 2);
}

void decode_float_fma(Decoder& d, Instr& out, Type type) {
  out.op_class = OpClass::Fp;
  if (is_half(type)) return decode_half_fma(d, out, type);
  if (!type_is_float(type)) d.unknown();
  const FloatModifiers mods = take_float_modifiers(d);
  out.set_mods(mods);
  const bool pair = type == Type::F32x2;
  if (type == Type::F64) {
    out.handler = run_fma_f64;
  } else if (mods.rounding != Rounding::kNearestEven) {
    out.handler = pair ? run_fma_rounded<true> : run_fma_rounded<false>;
  } else {
    with_flags(mods.ftz, mods.sat, [&]<bool kFtz, bool kSat>() {
      out.handler = pair ? run_fma<true, kFtz, kSat> : run_fma<false, kFtz, kSat>;
    });
  }
  decode_map(d, type_bits(type), type_bits(type), 3);
}

void decode_float_div(Decoder& d, Instr& out, Type type) {
  const int approximation = d.modifiers().take_one({"approx", "full"});
  if (approximation < 0) {
    if (type != Type::F32 && type != Type::F64) d.unknown();
    return decode_float_binary(d, out, type, FloatBinary::Div);
  }
  out.op_class = OpClass::Fp;
  if (type != Type::F32) d.unknown();
  const bool ftz = d.modifiers().take("ftz");
  if (approximation == 0) {
    out.handler =
        ftz ? run_approximate_div<model::divide_approx, true> : run_approximate_div<model::divide_approx, false>;
  } else {
    out.handler = ftz ? run_approximate_div<model::divide_full, true> : run_approximate_div<model::divide_full, false>;
  }
  decode_map(d, 32, 32, 2);
}

void decode_float_sign(Decoder& d, Instr& out, Type type, FloatSign sign) {
  out.op_class = OpClass::Fp;
  const bool ftz = d.modifiers().take("ftz");
  if (ftz && type != Type::F32) d.unknown();
  out.handler =
      sign == FloatSign::Neg ? sign_handler<FloatSign::Neg>(type, ftz) : sign_handler<FloatSign::Abs>(type, ftz);
  decode_map(d, type_bits(type), type_bits(type), 1);
}

void decode_float_min_max(Decoder& d, Instr& out, Type type, bool is_max) {
  out.op_class = OpClass::Fp;
  if (is_half(type)) return decode_half_min_max(d, out, type, is_max);
  MinMaxModifiers mods{};
  mods.is_max = is_max;
  mods.ftz = d.modifiers().take("ftz");
  mods.nan = d.modifiers().take("NaN");
  mods.xorsign_abs = d.modifiers().take("xorsign");
  if (mods.xorsign_abs && !d.modifiers().take("abs")) d.unknown();
  mods.sources = static_cast<uint8_t>(d.operand_count() - 1);
  if (mods.sources < 2 || mods.sources > (type == Type::F32 ? 3 : 2) || type == Type::F32x2) d.unknown();
  out.set_mods(mods);
  out.handler = type == Type::F32 ? run_min_max_f32 : run_min_max_f64;
  decode_map(d, type_bits(type), type_bits(type), mods.sources);
}

}  // namespace ptxrun

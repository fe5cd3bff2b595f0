// rcp, sqrt, rsqrt, ex2, lg2, sin, cos, tanh.
#include "model/approximations.h"

#include "ops/float.h"
#include "ops/float_lane.h"
#include "ops/lanes.h"

namespace ptxrun {
namespace {

using model::UnaryFunction;

struct ApproximateModifiers {
  const model::FloatFormat* format;
  UnaryFunction function;
  bool ftz, pair;
};

Step run_narrow(Warp& warp, const Instr& instr, LaneMask active) {
  const auto& mods = instr.mods<ApproximateModifiers>();
  const uint32_t* a = warp.in<uint32_t>(instr.op(1));
  uint32_t* d = warp.out<uint32_t>(instr.op(0));
  const auto f = [&](uint32_t bits) {
    return static_cast<uint32_t>(model::approximate(mods.function, *mods.format, bits, mods.ftz));
  };
  for_lanes(active, [&](int lane) { d[lane] = mods.pair ? f(a[lane] & 0xFFFF) | f(a[lane] >> 16) << 16 : f(a[lane]); });
  return Step::Next;
}

Step run_f64(Warp& warp, const Instr& instr, LaneMask active) {
  const auto& mods = instr.mods<ApproximateModifiers>();
  const uint64_t* a = warp.in<uint64_t>(instr.op(1));
  uint64_t* d = warp.out<uint64_t>(instr.op(0));
  for_lanes(active, [&](int lane) { d[lane] = model::approximate(mods.function, model::kF64, a[lane], mods.ftz); });
  return Step::Next;
}

// The exact forms, .rn and so on.
template <class T, UnaryFunction kFunction>
Step run_exact(Warp& warp, const Instr& instr, LaneMask active) {
  const auto& mods = instr.mods<FloatModifiers>();
  const T* a = warp.in<T>(instr.op(1));
  T* d = warp.out<T>(instr.op(0));
  for_lanes(active, [&](int lane) {
    T x = a[lane];
    if constexpr (std::is_same_v<T, float>) x = mods.ftz ? flush(x) : x;
    T y = kFunction == UnaryFunction::kSqrt ? rounded_sqrt(x, mods.rounding)
                                            : rounded_binary(FloatBinary::Div, T{1}, x, mods.rounding);
    if constexpr (std::is_same_v<T, float>) y = result(y, mods.ftz, false);
    d[lane] = y;
  });
  return Step::Next;
}

const model::FloatFormat* format_of(Decoder& d, Type type) {
  switch (type) {
    case Type::F32:
      return &model::kF32;
    case Type::F64:
      return &model::kF64;
    case Type::F16:
    case Type::F16x2:
      return &model::kF16;
    case Type::BF16:
    case Type::BF16x2:
      return &model::kBf16;
    default:
      d.unknown();
  }
}

void decode_approximate(Decoder& d, Instr& out, UnaryFunction function, Type type) {
  out.op_class = OpClass::Fp;
  ApproximateModifiers mods{format_of(d, type), function, d.modifiers().take("ftz"),
                            type_bits(type) == 32 && is_half(type)};
  if (!d.modifiers().take("approx")) d.unknown();
  out.set_mods(mods);
  out.handler = type == Type::F64 ? run_f64 : run_narrow;
  decode_map(d, type_bits(type), type_bits(type), 1);
}

template <UnaryFunction kFunction>
void decode_unary(Decoder& d, Instr& out) {
  decode_approximate(d, out, kFunction, d.modifiers().take_type());
}

template <UnaryFunction kFunction>
void decode_exact_or_approximate(Decoder& d, Instr& out) {
  const Type type = d.modifiers().take_type();
  for (const std::string_view part : d.modifiers().left()) {
    if (part == "approx") return decode_approximate(d, out, kFunction, type);
  }
  out.op_class = OpClass::Fp;
  const FloatModifiers mods = take_float_modifiers(d);
  if (mods.sat || (type != Type::F32 && type != Type::F64)) d.unknown();
  out.set_mods(mods);
  out.handler = type == Type::F32 ? run_exact<float, kFunction> : run_exact<double, kFunction>;
  decode_map(d, type_bits(type), type_bits(type), 1);
}

const Family families[] = {
    {"rcp", decode_exact_or_approximate<UnaryFunction::kReciprocal>},
    {"sqrt", decode_exact_or_approximate<UnaryFunction::kSqrt>},
    {"rsqrt", decode_unary<UnaryFunction::kReciprocalSqrt>},
    {"ex2", decode_unary<UnaryFunction::kExp2>},
    {"lg2", decode_unary<UnaryFunction::kLog2>},
    {"sin", decode_unary<UnaryFunction::kSin>},
    {"cos", decode_unary<UnaryFunction::kCos>},
    {"tanh", decode_unary<UnaryFunction::kTanh>},
};

}  // namespace
}  // namespace ptxrun

// Floating-point arithmetic: the part that mnemonics shared with integers hand over.
#pragma once

#include "decode/decoder.h"
#include "model/float_format.h"

namespace ptxrun {

enum class FloatBinary : uint8_t { Add, Sub, Mul, Div };
enum class FloatSign : uint8_t { Neg, Abs };

void decode_float_binary(Decoder& d, Instr& out, Type type, FloatBinary op);
void decode_float_fma(Decoder& d, Instr& out, Type type);
void decode_float_div(Decoder& d, Instr& out, Type type);
void decode_float_sign(Decoder& d, Instr& out, Type type, FloatSign sign);
void decode_float_min_max(Decoder& d, Instr& out, Type type, bool is_max);
// The same for f16, bf16 and their pairs.
void decode_half_binary(Decoder& d, Instr& out, Type type, FloatBinary op);
void decode_half_fma(Decoder& d, Instr& out, Type type);
void decode_half_min_max(Decoder& d, Instr& out, Type type, bool is_max);

struct FloatModifiers {
  model::Rounding rounding = model::Rounding::kNearestEven;
  bool ftz = false, sat = false;
  FloatBinary op = FloatBinary::Add;
};
FloatModifiers take_float_modifiers(Decoder& d);

inline bool is_half(Type type) {
  return type == Type::F16 || type == Type::BF16 || type == Type::F16x2 || type == Type::BF16x2;
}

// Calls f<a, b>() with two run-time flags as template arguments.
template <class F>
void with_flags(bool a, bool b, F&& f) {
  if (a) {
    b ? f.template operator()<true, true>() : f.template operator()<true, false>();
  } else {
    b ? f.template operator()<false, true>() : f.template operator()<false, false>();
  }
}

// Directed rounding, by the processor's rounding mode.
float rounded_binary(FloatBinary op, float a, float b, model::Rounding rounding);
double rounded_binary(FloatBinary op, double a, double b, model::Rounding rounding);
float rounded_fma(float a, float b, float c, model::Rounding rounding);
double rounded_fma(double a, double b, double c, model::Rounding rounding);
float rounded_sqrt(float a, model::Rounding rounding);
double rounded_sqrt(double a, model::Rounding rounding);

}  // namespace ptxrun

// Integer arithmetic: add, sub, mul, mad, sad, div, rem, abs, neg, min, max, dp4a, dp2a, carries.
#include <algorithm>
#include <limits>

#include "ops/float.h"
#include "ops/lanes.h"

namespace ptxrun {
namespace {

template <class T>
using Unsigned = std::make_unsigned_t<T>;
template <class T>
using Wide = std::conditional_t<
    std::is_signed_v<T>,
    std::conditional_t<sizeof(T) == 2, int32_t, std::conditional_t<sizeof(T) == 4, int64_t, __int128>>,
    std::conditional_t<sizeof(T) == 2, uint32_t, std::conditional_t<sizeof(T) == 4, uint64_t, unsigned __int128>>>;

template <class T>
T wrap_add(T a, T b) {
  return static_cast<T>(static_cast<Unsigned<T>>(a) + static_cast<Unsigned<T>>(b));
}
template <class T>
T wrap_sub(T a, T b) {
  return static_cast<T>(static_cast<Unsigned<T>>(a) - static_cast<Unsigned<T>>(b));
}
template <class T>
T saturate(int64_t value) {
  return static_cast<T>(std::clamp<int64_t>(value, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
}
template <class T>
T mul_low(T a, T b) {
  return static_cast<T>(static_cast<Wide<T>>(static_cast<Wide<Unsigned<T>>>(static_cast<Unsigned<T>>(a)) *
                                             static_cast<Wide<Unsigned<T>>>(static_cast<Unsigned<T>>(b))));
}
template <class T>
T mul_high(T a, T b) {
  return static_cast<T>(static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b) >> (8 * sizeof(T)));
}
// Division by zero gives all ones, as the hardware's sequence does.
template <class T>
T divide(T a, T b) {
  if (b == 0) return static_cast<T>(~Unsigned<T>{0});
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return wrap_sub<T>(0, a);
  return static_cast<T>(a / b);
}
template <class T>
T remainder(T a, T b) {
  if (b == 0) return a;
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
  return static_cast<T>(a % b);
}
template <class T>
T absolute(T a) {
  return a < 0 ? wrap_sub<T>(0, a) : a;
}

// Two 16-bit halves of a word.
template <class T, auto F>
uint32_t halves(uint32_t a, uint32_t b) {
  const auto low = static_cast<uint16_t>(F(static_cast<T>(a), static_cast<T>(b)));
  const auto high = static_cast<uint16_t>(F(static_cast<T>(a >> 16), static_cast<T>(b >> 16)));
  return low | static_cast<uint32_t>(high) << 16;
}

template <class T>
constexpr auto kMin = [](T a, T b) { return std::min(a, b); };
template <class T>
constexpr auto kMax = [](T a, T b) { return std::max(a, b); };
template <class T>
constexpr auto kAdd = [](T a, T b) { return wrap_add<T>(a, b); };
// The .relu of min and max.
template <class T, auto F>
constexpr auto kRelu = [](T a, T b) { return std::max<T>(F(a, b), 0); };

void decode_packed(Decoder& d, Instr& out, Type type, Handler unsigned_op, Handler signed_op) {
  out.handler = type == Type::U16x2 ? unsigned_op : signed_op;
  decode_map(d, 32, 32, 2);
}

// Carries ---------------------------------------------------------------------------------------------------------

// The condition code register.
struct Carry : Extension<Warp> {
  explicit Carry(Warp&) {}
  LaneMask flag = 0;
};

template <class T, bool kSub, bool kIn, bool kOut>
Step add_carry(Warp& warp, const Instr& instr, LaneMask active) {
  LaneMask& flag = warp.ext<Carry>().flag;
  const T* a = warp.in<T>(instr.op(1));
  const T* b = warp.in<T>(instr.op(2));
  T* d = warp.out<T>(instr.op(0));
  for_lanes(active, [&](int lane) {
    // a - b - borrow = a + ~b + 1 - borrow.
    const T y = kSub ? static_cast<T>(~b[lane]) : b[lane];
    const bool in = kIn ? ((flag >> lane & 1) != 0) != kSub : kSub;
    const auto sum = static_cast<unsigned __int128>(a[lane]) + y + in;
    d[lane] = static_cast<T>(sum);
    const bool carry = (sum >> (8 * sizeof(T)) != 0) != kSub;
    if (kOut) flag = (flag & ~(LaneMask{1} << lane)) | LaneMask{carry} << lane;
  });
  return Step::Next;
}

template <bool kSub, bool kIn>
void decode_carry(Decoder& d, Instr& out, Type type) {
  const bool sets = d.modifiers().take("cc");
  const bool wide = type_bits(type) == 64;
  if (type_bits(type) < 32) d.unknown();
  if (wide) {
    out.handler = sets ? add_carry<uint64_t, kSub, kIn, true> : add_carry<uint64_t, kSub, kIn, false>;
  } else {
    out.handler = sets ? add_carry<uint32_t, kSub, kIn, true> : add_carry<uint32_t, kSub, kIn, false>;
  }
  decode_map(d, type_bits(type), type_bits(type), 2);
}

// mad.cc and madc: product low or high, plus c, plus the carry.
template <class T, bool kHigh, bool kIn, bool kOut>
Step mad_carry(Warp& warp, const Instr& instr, LaneMask active) {
  LaneMask& flag = warp.ext<Carry>().flag;
  const T* a = warp.in<T>(instr.op(1));
  const T* b = warp.in<T>(instr.op(2));
  const T* c = warp.in<T>(instr.op(3));
  T* d = warp.out<T>(instr.op(0));
  for_lanes(active, [&](int lane) {
    using U = Unsigned<T>;
    const U product = static_cast<U>(kHigh ? mul_high<T>(a[lane], b[lane]) : mul_low<T>(a[lane], b[lane]));
    const auto sum = static_cast<unsigned __int128>(product) + static_cast<U>(c[lane]) + (kIn ? flag >> lane & 1 : 0);
    d[lane] = static_cast<T>(sum);
    const bool carry = sum >> (8 * sizeof(T)) != 0;
    if (kOut) flag = (flag & ~(LaneMask{1} << lane)) | LaneMask{carry} << lane;
  });
  return Step::Next;
}

template <bool kIn>
void decode_mad_carry(Decoder& d, Instr& out, Type type) {
  const int part = d.modifiers().take_one({"lo", "hi"});
  const bool sets = d.modifiers().take("cc");
  if (part < 0 || type_bits(type) < 32) d.unknown();
  with_integer(type, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (sizeof(T) >= 4) {
      if (part == 1) {
        out.handler = sets ? mad_carry<T, true, kIn, true> : mad_carry<T, true, kIn, false>;
      } else {
        out.handler = sets ? mad_carry<T, false, kIn, true> : mad_carry<T, false, kIn, false>;
      }
    }
  });
  if (out.handler == nullptr) d.unknown();
  decode_map(d, type_bits(type), type_bits(type), 3);
}

// add, sub --------------------------------------------------------------------------------------------------------

template <bool kSub>
void decode_add(Decoder& d, Instr& out) {
  const Type type = d.modifiers().take_type();
  if (type_is_float(type)) return decode_float_binary(d, out, type, kSub ? FloatBinary::Sub : FloatBinary::Add);
  if (!kSub && (type == Type::U16x2 || type == Type::S16x2)) {
    constexpr auto add = halves<uint16_t, kAdd<uint16_t>>;
    return decode_packed(d, out, type, map2<uint32_t, uint32_t, uint32_t, add>,
                         map2<uint32_t, uint32_t, uint32_t, add>);
  }
  for (const std::string_view part : d.modifiers().left()) {
    if (part == "cc") return decode_carry<kSub, false>(d, out, type);
  }
  if (d.modifiers().take("sat")) {
    if (type != Type::S32) d.unknown();
    out.handler = map2<int32_t, int32_t, int32_t,
                       [](int32_t a, int32_t b) { return saturate<int32_t>(kSub ? int64_t{a} - b : int64_t{a} + b); }>;
    return decode_map(d, 32, 32, 2);
  }
  const bool known = with_integer(type, [&](auto zero) {
    using T = decltype(zero);
    out.handler = map2<T, T, T, [](T a, T b) { return kSub ? wrap_sub<T>(a, b) : wrap_add<T>(a, b); }>;
  });
  if (!known) d.unknown();
  decode_map(d, type_bits(type), type_bits(type), 2);
}

void decode_addc(Decoder& d, Instr& out) { decode_carry<false, true>(d, out, d.modifiers().take_type()); }
void decode_subc(Decoder& d, Instr& out) { decode_carry<true, true>(d, out, d.modifiers().take_type()); }
void decode_madc(Decoder& d, Instr& out) { decode_mad_carry<true>(d, out, d.modifiers().take_type()); }

// mul, mad --------------------------------------------------------------------------------------------------------

void decode_mul(Decoder& d, Instr& out) {
  const Type type = d.modifiers().take_type();
  if (type_is_float(type)) return decode_float_binary(d, out, type, FloatBinary::Mul);
  const int part = d.modifiers().take_one({"lo", "hi", "wide"});
  const bool known = with_integer(type, [&](auto zero) {
    using T = decltype(zero);
    if (part == 0) out.handler = map2<T, T, T, mul_low<T>>;
    if (part == 1) out.handler = map2<T, T, T, mul_high<T>>;
    if constexpr (sizeof(T) < 8) {
      if (part == 2) {
        out.handler = map2<Wide<T>, T, T, [](T a, T b) { return static_cast<Wide<T>>(Wide<T>{a} * Wide<T>{b}); }>;
      }
    }
  });
  if (!known || out.handler == nullptr) d.unknown();
  decode_map(d, part == 2 ? 2 * type_bits(type) : type_bits(type), type_bits(type), 2);
}

void decode_mad(Decoder& d, Instr& out) {
  const Type type = d.modifiers().take_type();
  if (type_is_float(type)) return decode_float_fma(d, out, type);
  for (const std::string_view left : d.modifiers().left()) {
    if (left == "cc") return decode_mad_carry<false>(d, out, type);
  }
  const int part = d.modifiers().take_one({"lo", "hi", "wide"});
  const bool saturates = d.modifiers().take("sat");
  const bool known = with_integer(type, [&](auto zero) {
    using T = decltype(zero);
    if (part == 0) out.handler = map3<T, T, T, T, [](T a, T b, T c) { return wrap_add<T>(mul_low<T>(a, b), c); }>;
    if (part == 1) out.handler = map3<T, T, T, T, [](T a, T b, T c) { return wrap_add<T>(mul_high<T>(a, b), c); }>;
    if constexpr (sizeof(T) < 8) {
      using W = Wide<T>;
      if (part == 2) {
        out.handler = map3<W, T, T, W, [](T a, T b, W c) { return wrap_add<W>(static_cast<W>(W{a} * W{b}), c); }>;
      }
    }
  });
  if (saturates) {
    if (part != 1 || type != Type::S32) d.unknown();
    out.handler = map3<int32_t, int32_t, int32_t, int32_t, [](int32_t a, int32_t b, int32_t c) {
      return saturate<int32_t>(int64_t{mul_high<int32_t>(a, b)} + c);
    }>;
  }
  if (!known || out.handler == nullptr) d.unknown();
  if (part != 2) return decode_map(d, type_bits(type), type_bits(type), 3);
  d.write(d.operand(0), 2 * type_bits(type));
  d.read(d.operand(1), type_bits(type));
  d.read(d.operand(2), type_bits(type));
  d.read(d.operand(3), 2 * type_bits(type));
  d.finish(4);
}

// mul24, mad24: 24-bit factors, low or high 32 bits of the 48-bit product.
template <class T>
int64_t low_24(T x) {
  return std::is_signed_v<T> ? static_cast<int32_t>(static_cast<uint32_t>(x) << 8) >> 8
                             : static_cast<int64_t>(x & 0xFFFFFF);
}

template <class T, bool kHigh>
uint32_t mul_24(T a, T b) {
  return static_cast<uint32_t>(low_24(a) * low_24(b) >> (kHigh ? 16 : 0));
}

template <class T, bool kHigh, bool kMad>
Step run_24(Warp& warp, const Instr& instr, LaneMask active) {
  if constexpr (kMad) {
    constexpr auto mad = [](T a, T b, uint32_t c) { return mul_24<T, kHigh>(a, b) + c; };
    return map3<uint32_t, T, T, uint32_t, mad>(warp, instr, active);
  } else {
    return map2<uint32_t, T, T, mul_24<T, kHigh>>(warp, instr, active);
  }
}

template <bool kMad>
void decode_24(Decoder& d, Instr& out) {
  const Type type = d.modifiers().take_type();
  const int part = d.modifiers().take_one({"lo", "hi"});
  if (part < 0 || (type != Type::U32 && type != Type::S32)) d.unknown();
  if (type == Type::U32) {
    out.handler = part ? run_24<uint32_t, true, kMad> : run_24<uint32_t, false, kMad>;
  } else {
    out.handler = part ? run_24<int32_t, true, kMad> : run_24<int32_t, false, kMad>;
  }
  decode_map(d, 32, 32, kMad ? 3 : 2);
}

void decode_sad(Decoder& d, Instr& out) {
  const Type type = d.modifiers().take_type();
  const bool known = with_integer(type, [&](auto zero) {
    using T = decltype(zero);
    out.handler =
        map3<T, T, T, T, [](T a, T b, T c) { return wrap_add<T>(c, a < b ? wrap_sub<T>(b, a) : wrap_sub<T>(a, b)); }>;
  });
  if (!known) d.unknown();
  decode_map(d, type_bits(type), type_bits(type), 3);
}

// div, rem, abs, neg ----------------------------------------------------------------------------------------------

void decode_div(Decoder& d, Instr& out) {
  const Type type = d.modifiers().take_type();
  if (type_is_float(type)) return decode_float_div(d, out, type);
  const bool known = with_integer(type, [&](auto zero) {
    using T = decltype(zero);
    out.handler = map2<T, T, T, divide<T>>;
  });
  if (!known) d.unknown();
  decode_map(d, type_bits(type), type_bits(type), 2);
}

void decode_rem(Decoder& d, Instr& out) {
  const Type type = d.modifiers().take_type();
  const bool known = with_integer(type, [&](auto zero) {
    using T = decltype(zero);
    out.handler = map2<T, T, T, remainder<T>>;
  });
  if (!known) d.unknown();
  decode_map(d, type_bits(type), type_bits(type), 2);
}

void decode_abs(Decoder& d, Instr& out) {
  const Type type = d.modifiers().take_type();
  if (type_is_float(type)) return decode_float_sign(d, out, type, FloatSign::Abs);
  const bool known = type_is_signed(type) && with_integer(type, [&](auto zero) {
                       using T = decltype(zero);
                       out.handler = map1<T, T, absolute<T>>;
                     });
  if (!known) d.unknown();
  decode_map(d, type_bits(type), type_bits(type), 1);
}

void decode_neg(Decoder& d, Instr& out) {
  const Type type = d.modifiers().take_type();
  if (type_is_float(type)) return decode_float_sign(d, out, type, FloatSign::Neg);
  const bool known = type_is_signed(type) && with_integer(type, [&](auto zero) {
                       using T = decltype(zero);
                       out.handler = map1<T, T, [](T a) { return wrap_sub<T>(0, a); }>;
                     });
  if (!known) d.unknown();
  decode_map(d, type_bits(type), type_bits(type), 1);
}

// min, max --------------------------------------------------------------------------------------------------------

template <bool kIsMax>
void decode_min_max(Decoder& d, Instr& out) {
  const Type type = d.modifiers().take_type();
  if (type_is_float(type)) return decode_float_min_max(d, out, type, kIsMax);
  const bool relu = d.modifiers().take("relu");
  if (type == Type::U16x2 || type == Type::S16x2) {
    constexpr auto u = kIsMax ? halves<uint16_t, kMax<uint16_t>> : halves<uint16_t, kMin<uint16_t>>;
    constexpr auto s = kIsMax ? halves<int16_t, kMax<int16_t>> : halves<int16_t, kMin<int16_t>>;
    constexpr auto r =
        kIsMax ? halves<int16_t, kRelu<int16_t, kMax<int16_t>>> : halves<int16_t, kRelu<int16_t, kMin<int16_t>>>;
    if (relu && type == Type::U16x2) d.unknown();
    return decode_packed(d, out, type, map2<uint32_t, uint32_t, uint32_t, u>,
                         relu ? map2<uint32_t, uint32_t, uint32_t, r> : map2<uint32_t, uint32_t, uint32_t, s>);
  }
  if (relu && type != Type::S32) d.unknown();
  const bool known = with_integer(type, [&](auto zero) {
    using T = decltype(zero);
    out.handler = kIsMax ? map2<T, T, T, kMax<T>> : map2<T, T, T, kMin<T>>;
    if constexpr (std::is_same_v<T, int32_t>) {
      if (relu) out.handler = kIsMax ? map2<T, T, T, kRelu<T, kMax<T>>> : map2<T, T, T, kRelu<T, kMin<T>>>;
    }
  });
  if (!known) d.unknown();
  decode_map(d, type_bits(type), type_bits(type), 2);
}

// Dot products of bytes -------------------------------------------------------------------------------------------

template <class A, class B>
uint32_t dot_4(uint32_t a, uint32_t b, uint32_t c) {
  int64_t sum = 0;
  for (int i = 0; i < 32; i += 8) sum += int64_t{static_cast<A>(a >> i)} * static_cast<B>(b >> i);
  return static_cast<uint32_t>(sum + c);
}

template <class A, class B, bool kHigh>
uint32_t dot_2(uint32_t a, uint32_t b, uint32_t c) {
  using Half = std::conditional_t<std::is_signed_v<A>, int16_t, uint16_t>;
  const uint32_t bytes = b >> (kHigh ? 16 : 0);
  const int64_t low = int64_t{static_cast<Half>(a)} * static_cast<B>(bytes);
  const int64_t high = int64_t{static_cast<Half>(a >> 16)} * static_cast<B>(bytes >> 8);
  return static_cast<uint32_t>(low + high + c);
}

template <class A, class B>
Handler dot_handler(int words, int part) {
  using U = uint32_t;
  if (words == 4) return map3<U, U, U, U, dot_4<A, B>>;
  return part == 1 ? map3<U, U, U, U, dot_2<A, B, true>> : map3<U, U, U, U, dot_2<A, B, false>>;
}

template <int kWords>
void decode_dp(Decoder& d, Instr& out) {
  const int part = kWords == 2 ? d.modifiers().take_one({"lo", "hi"}) : 0;
  const Type a = d.modifiers().take_type(), b = d.modifiers().take_type();
  const bool known = (a == Type::U32 || a == Type::S32) && (b == Type::U32 || b == Type::S32) && part >= 0;
  if (!known) d.unknown();
  if (a == Type::U32) {
    out.handler =
        b == Type::U32 ? dot_handler<uint8_t, uint8_t>(kWords, part) : dot_handler<uint8_t, int8_t>(kWords, part);
  } else {
    out.handler =
        b == Type::U32 ? dot_handler<int8_t, uint8_t>(kWords, part) : dot_handler<int8_t, int8_t>(kWords, part);
  }
  decode_map(d, 32, 32, 3);
}

const Family families[] = {
    {"add", decode_add<false>},    {"sub", decode_add<true>},   {"addc", decode_addc},
    {"subc", decode_subc},         {"madc", decode_madc},       {"mul", decode_mul},
    {"mad", decode_mad},           {"mul24", decode_24<false>}, {"mad24", decode_24<true>},
    {"sad", decode_sad},           {"div", decode_div},         {"rem", decode_rem},
    {"abs", decode_abs},           {"neg", decode_neg},         {"min", decode_min_max<false>},
    {"max", decode_min_max<true>}, {"dp4a", decode_dp<4>},      {"dp2a", decode_dp<2>},
};

}  // namespace
}  // namespace ptxrun

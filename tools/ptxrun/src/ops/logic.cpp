// Bits: and, or, xor, not, cnot, lop3, shifts, shf, prmt, bfe, bfi, bfind, brev, popc, clz, fns, bmsk, szext.
#include <algorithm>
#include <bit>

#include "ops/lanes.h"

namespace ptxrun {
namespace {

enum class Logic : uint8_t { And, Or, Xor, Not };

template <Logic kOp, class T>
T logic(T a, T b) {
  if constexpr (kOp == Logic::And) return a & b;
  if constexpr (kOp == Logic::Or) return a | b;
  if constexpr (kOp == Logic::Xor) return a ^ b;
  return static_cast<T>(~a);
}

template <Logic kOp>
Step run_predicate(Warp& warp, const Instr& instr, LaneMask active) {
  const LaneMask a = warp.predicate(instr.op(1));
  const LaneMask b = kOp == Logic::Not ? 0 : warp.predicate(instr.op(2));
  warp.set_predicate(instr.op(0), logic<kOp>(a, b), active);
  return Step::Next;
}

template <Logic kOp>
void decode_logic(Decoder& d, Instr& out) {
  const Type type = d.modifiers().take_type();
  constexpr size_t kSources = kOp == Logic::Not ? 1 : 2;
  if (type == Type::Pred) {
    out.handler = run_predicate<kOp>;
    d.write_predicate(d.operand(0));
    for (size_t i = 1; i <= kSources; ++i) d.read_predicate(d.operand(i));
    return d.finish(kSources + 1);
  }
  const bool known = with_integer(type, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (kOp == Logic::Not) {
      out.handler = map1<T, T, [](T a) { return static_cast<T>(~a); }>;
    } else {
      out.handler = map2<T, T, T, [](T a, T b) { return static_cast<T>(logic<kOp>(a, b)); }>;
    }
  });
  if (!known) d.unknown();
  decode_map(d, type_bits(type), type_bits(type), kSources);
}

void decode_cnot(Decoder& d, Instr& out) {
  const Type type = d.modifiers().take_type();
  const bool known = with_integer(type, [&](auto zero) {
    using T = decltype(zero);
    out.handler = map1<T, T, [](T a) { return static_cast<T>(a == 0); }>;
  });
  if (!known) d.unknown();
  decode_map(d, type_bits(type), type_bits(type), 1);
}

// lop3 ------------------------------------------------------------------------------------------------------------

enum class Combine : uint8_t { None, And, Or, Xor };

struct Lop3Modifiers {
  uint8_t table;
  Combine combine;
};

uint32_t lookup(uint8_t table, uint32_t a, uint32_t b, uint32_t c) {
  uint32_t result = 0;
  for (int i = 0; i < 8; ++i) {
    if (!(table >> i & 1)) continue;
    result |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
  }
  return result;
}

Step run_lop3(Warp& warp, const Instr& instr, LaneMask active) {
  const auto& mods = instr.mods<Lop3Modifiers>();
  const uint32_t* a = warp.in<uint32_t>(instr.op(1));
  const uint32_t* b = warp.in<uint32_t>(instr.op(2));
  const uint32_t* c = warp.in<uint32_t>(instr.op(3));
  const bool writes = instr.op(0).kind != Operand::Kind::None;
  uint32_t* d = warp.out<uint32_t>(instr.op(0));
  LaneMask not_zero = 0;
  for_lanes(active, [&](int lane) {
    const uint32_t value = lookup(mods.table, a[lane], b[lane], c[lane]);
    if (writes) d[lane] = value;
    not_zero |= LaneMask{value != 0} << lane;
  });
  if (mods.combine == Combine::None) return Step::Next;
  const LaneMask q = warp.predicate(instr.op(5));
  const LaneMask p = mods.combine == Combine::And  ? not_zero & q
                     : mods.combine == Combine::Or ? not_zero | q
                                                   : not_zero ^ q;
  warp.set_predicate(instr.op(4), p, active);
  return Step::Next;
}

void decode_lop3(Decoder& d, Instr& out) {
  const int combine = d.modifiers().take_one({"and", "or", "xor"});
  if (d.modifiers().take_type() != Type::B32) d.unknown();
  const ast::Operand& target = d.operand(0);
  const bool pair = target.kind == ast::OperandKind::Pair;
  if (pair != (combine >= 0)) d.unknown();
  d.write(pair ? target.parts[0] : target, 32);
  for (size_t i = 1; i <= 3; ++i) d.read(d.operand(i), 32);
  out.set_mods(Lop3Modifiers{static_cast<uint8_t>(d.immediate(d.operand(4))), static_cast<Combine>(combine + 1)});
  out.handler = run_lop3;
  if (pair) {
    d.write_predicate(target.parts[1]);
    d.read_predicate(d.operand(5));
  }
  d.finish(pair ? 6 : 5);
}

// Shifts ----------------------------------------------------------------------------------------------------------

template <class T>
T shift_left(T a, uint32_t by) {
  return by >= 8 * sizeof(T) ? T{0} : static_cast<T>(a << by);
}
template <class T>
T shift_right(T a, uint32_t by) {
  const uint32_t last = 8 * sizeof(T) - 1;
  if (by > last) return std::is_signed_v<T> ? static_cast<T>(a >> last) : T{0};
  return static_cast<T>(a >> by);
}

template <bool kLeft>
void decode_shift(Decoder& d, Instr& out) {
  const Type type = d.modifiers().take_type();
  const bool known = with_integer(type, [&](auto zero) {
    using T = decltype(zero);
    out.handler = kLeft ? map2<T, T, uint32_t, shift_left<T>> : map2<T, T, uint32_t, shift_right<T>>;
  });
  if (!known) d.unknown();
  d.write(d.operand(0), type_bits(type));
  d.read(d.operand(1), type_bits(type));
  d.read(d.operand(2), 32);
  d.finish(3);
}

template <bool kLeft, bool kWrap>
uint32_t funnel(uint32_t low, uint32_t high, uint32_t by) {
  const uint32_t n = kWrap ? by & 31 : std::min(by, 32u);
  const uint64_t both = uint64_t{high} << 32 | low;
  return static_cast<uint32_t>(kLeft ? (both << n) >> 32 : both >> n);
}

void decode_shf(Decoder& d, Instr& out) {
  const int left = d.modifiers().take_one({"r", "l"}), wrap = d.modifiers().take_one({"clamp", "wrap"});
  if (left < 0 || wrap < 0 || d.modifiers().take_type() != Type::B32) d.unknown();
  using U = uint32_t;
  constexpr Handler handlers[] = {map3<U, U, U, U, funnel<false, false>>, map3<U, U, U, U, funnel<false, true>>,
                                  map3<U, U, U, U, funnel<true, false>>, map3<U, U, U, U, funnel<true, true>>};
  out.handler = handlers[2 * left + wrap];
  decode_map(d, 32, 32, 3);
}

// prmt ------------------------------------------------------------------------------------------------------------

enum class Permute : uint8_t { Index, F4e, B4e, Rc8, Ecl, Ecr, Rc16 };

// Byte i of the result is this byte of {b, a}.
int permute_source(Permute mode, uint32_t selector, int i) {
  const int c = static_cast<int>(selector & 3);
  switch (mode) {
    case Permute::F4e:
      return c + i;
    case Permute::B4e:
      return (c - i) & 7;
    case Permute::Rc8:
      return c;
    case Permute::Ecl:
      return std::max(i, c);
    case Permute::Ecr:
      return std::min(i, c);
    case Permute::Rc16:
      return 2 * (c & 1) + (i & 1);
    default:
      return static_cast<int>(selector >> 4 * i & 7);
  }
}

template <Permute kMode>
uint32_t permute(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    auto byte = static_cast<uint8_t>(bytes >> 8 * permute_source(kMode, selector, i));
    const bool replicate_sign = kMode == Permute::Index && (selector >> (4 * i + 3) & 1);
    if (replicate_sign) byte = byte & 0x80 ? 0xFF : 0;
    result |= uint32_t{byte} << 8 * i;
  }
  return result;
}

void decode_prmt(Decoder& d, Instr& out) {
  if (d.modifiers().take_type() != Type::B32) d.unknown();
  const int mode = d.modifiers().take_one({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"}) + 1;
  using U = uint32_t;
  constexpr Handler handlers[] = {map3<U, U, U, U, permute<Permute::Index>>, map3<U, U, U, U, permute<Permute::F4e>>,
                                  map3<U, U, U, U, permute<Permute::B4e>>,   map3<U, U, U, U, permute<Permute::Rc8>>,
                                  map3<U, U, U, U, permute<Permute::Ecl>>,   map3<U, U, U, U, permute<Permute::Ecr>>,
                                  map3<U, U, U, U, permute<Permute::Rc16>>};
  out.handler = handlers[mode];
  decode_map(d, 32, 32, 3);
}

// Bit fields ------------------------------------------------------------------------------------------------------

template <class T>
T extract(T a, uint32_t position, uint32_t length) {
  constexpr uint32_t kBits = 8 * sizeof(T);
  using U = std::make_unsigned_t<T>;
  position &= 0xFF;
  length &= 0xFF;
  if (length == 0) return 0;
  const uint32_t top = std::min(position + length - 1, kBits - 1);
  const bool sign = std::is_signed_v<T> && (static_cast<U>(a) >> top & 1);
  U field = position >= kBits ? U{0} : static_cast<U>(static_cast<U>(a) >> position);
  const uint32_t kept = position >= kBits ? 0 : std::min(length, kBits - position);
  const U mask = kept >= kBits ? ~U{0} : (U{1} << kept) - 1;
  field &= mask;
  return static_cast<T>(sign ? field | ~mask : field);
}

template <class T>
Step run_bfi(Warp& warp, const Instr& instr, LaneMask active) {
  constexpr uint32_t kBits = 8 * sizeof(T);
  const T* a = warp.in<T>(instr.op(1));
  const T* b = warp.in<T>(instr.op(2));
  const uint32_t* c = warp.in<uint32_t>(instr.op(3));
  const uint32_t* length = warp.in<uint32_t>(instr.op(4));
  T* d = warp.out<T>(instr.op(0));
  for_lanes(active, [&](int lane) {
    const uint32_t position = c[lane] & 0xFF, count = length[lane] & 0xFF;
    T mask = count >= kBits ? ~T{0} : (T{1} << count) - 1;
    mask = shift_left(mask, position);
    d[lane] = (b[lane] & ~mask) | (shift_left(a[lane], position) & mask);
  });
  return Step::Next;
}

void decode_bfe(Decoder& d, Instr& out) {
  const Type type = d.modifiers().take_type();
  const bool known = with_integer(type, [&](auto zero) {
    using T = decltype(zero);
    out.handler = map3<T, T, uint32_t, uint32_t, extract<T>>;
  });
  if (!known || type_bits(type) < 32) d.unknown();
  d.write(d.operand(0), type_bits(type));
  d.read(d.operand(1), type_bits(type));
  d.read(d.operand(2), 32);
  d.read(d.operand(3), 32);
  d.finish(4);
}

void decode_bfi(Decoder& d, Instr& out) {
  const Type type = d.modifiers().take_type();
  if (type != Type::B32 && type != Type::B64) d.unknown();
  out.handler = type == Type::B32 ? run_bfi<uint32_t> : run_bfi<uint64_t>;
  d.write(d.operand(0), type_bits(type));
  d.read(d.operand(1), type_bits(type));
  d.read(d.operand(2), type_bits(type));
  d.read(d.operand(3), 32);
  d.read(d.operand(4), 32);
  d.finish(5);
}

// Position of the highest bit that differs from the sign; all ones if there is none.
template <class T, bool kShiftAmount>
uint32_t find_highest(T a) {
  using U = std::make_unsigned_t<T>;
  const U bits = std::is_signed_v<T> && a < 0 ? static_cast<U>(~a) : static_cast<U>(a);
  if (bits == 0) return ~0u;
  const auto position = static_cast<uint32_t>(std::bit_width(bits)) - 1;
  return kShiftAmount ? static_cast<uint32_t>(8 * sizeof(T)) - 1 - position : position;
}

void decode_bfind(Decoder& d, Instr& out) {
  const bool shift = d.modifiers().take("shiftamt");
  const Type type = d.modifiers().take_type();
  const bool known = with_integer(type, [&](auto zero) {
    using T = decltype(zero);
    out.handler = shift ? map1<uint32_t, T, find_highest<T, true>> : map1<uint32_t, T, find_highest<T, false>>;
  });
  if (!known || type_bits(type) < 32) d.unknown();
  decode_map(d, 32, type_bits(type), 1);
}

template <class T>
T reverse(T a) {
  T result = 0;
  for (size_t i = 0; i < 8 * sizeof(T); ++i) result = static_cast<T>(result << 1 | (a >> i & 1));
  return result;
}

template <auto kNarrow, auto kWide, bool kResultIs32>
void decode_count(Decoder& d, Instr& out) {
  const Type type = d.modifiers().take_type();
  if (type != Type::B32 && type != Type::B64) d.unknown();
  using W = std::conditional_t<kResultIs32, uint32_t, uint64_t>;
  out.handler = type == Type::B32 ? map1<uint32_t, uint32_t, kNarrow> : map1<W, uint64_t, kWide>;
  decode_map(d, kResultIs32 ? 32 : type_bits(type), type_bits(type), 1);
}

template <class T>
constexpr auto kPopulation = [](T a) { return static_cast<uint32_t>(std::popcount(a)); };
template <class T>
constexpr auto kLeadingZeros = [](T a) { return static_cast<uint32_t>(std::countl_zero(a)); };

// The offset-th set bit from base on, upwards or downwards; all ones if there is none.
uint32_t find_nth_set(uint32_t mask, uint32_t base, int32_t offset) {
  int32_t left = offset == 0 ? 1 : std::abs(offset);
  const int step = offset < 0 ? -1 : 1;
  for (int i = static_cast<int>(base & 31); i >= 0 && i < 32; i += step) {
    if ((mask >> i & 1) && --left == 0) return static_cast<uint32_t>(i);
    if (offset == 0) break;
  }
  return ~0u;
}

void decode_fns(Decoder& d, Instr& out) {
  if (d.modifiers().take_type() != Type::B32) d.unknown();
  out.handler = map3<uint32_t, uint32_t, uint32_t, int32_t, find_nth_set>;
  decode_map(d, 32, 32, 3);
}

template <bool kWrap>
uint32_t bit_mask(uint32_t position, uint32_t length) {
  if (kWrap) {
    position &= 31;
    length &= 31;
  }
  const uint32_t mask = length >= 32 ? ~0u : (1u << length) - 1;
  return shift_left(mask, position);
}

void decode_bmsk(Decoder& d, Instr& out) {
  const int wrap = d.modifiers().take_one({"clamp", "wrap"});
  if (wrap < 0 || d.modifiers().take_type() != Type::B32) d.unknown();
  out.handler =
      wrap ? map2<uint32_t, uint32_t, uint32_t, bit_mask<true>> : map2<uint32_t, uint32_t, uint32_t, bit_mask<false>>;
  decode_map(d, 32, 32, 2);
}

template <class T, bool kWrap>
T extend(T a, uint32_t bits) {
  if (kWrap) bits &= 31;
  if (bits == 0) return 0;
  if (bits >= 32) return a;
  const uint32_t shift = 32 - bits;
  return static_cast<T>(static_cast<T>(static_cast<uint32_t>(a) << shift) >> shift);
}

void decode_szext(Decoder& d, Instr& out) {
  const int wrap = d.modifiers().take_one({"clamp", "wrap"});
  const Type type = d.modifiers().take_type();
  if (wrap < 0 || (type != Type::U32 && type != Type::S32)) d.unknown();
  if (type == Type::U32) {
    out.handler = wrap ? map2<uint32_t, uint32_t, uint32_t, extend<uint32_t, true>>
                       : map2<uint32_t, uint32_t, uint32_t, extend<uint32_t, false>>;
  } else {
    out.handler = wrap ? map2<int32_t, int32_t, uint32_t, extend<int32_t, true>>
                       : map2<int32_t, int32_t, uint32_t, extend<int32_t, false>>;
  }
  decode_map(d, 32, 32, 2);
}

const Family families[] = {
    {"and", decode_logic<Logic::And>},
    {"or", decode_logic<Logic::Or>},
    {"xor", decode_logic<Logic::Xor>},
    {"not", decode_logic<Logic::Not>},
    {"cnot", decode_cnot},
    {"lop3", decode_lop3},
    {"shl", decode_shift<true>},
    {"shr", decode_shift<false>},
    {"shf", decode_shf},
    {"prmt", decode_prmt},
    {"bfe", decode_bfe},
    {"bfi", decode_bfi},
    {"bfind", decode_bfind},
    {"brev", decode_count<reverse<uint32_t>, reverse<uint64_t>, false>},
    {"popc", decode_count<kPopulation<uint32_t>, kPopulation<uint64_t>, true>},
    {"clz", decode_count<kLeadingZeros<uint32_t>, kLeadingZeros<uint64_t>, true>},
    {"fns", decode_fns},
    {"bmsk", decode_bmsk},
    {"szext", decode_szext},
};

}  // namespace
}  // namespace ptxrun

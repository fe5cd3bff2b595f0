// setp, set, selp, slct.
#include <bit>
#include <utility>

#include "model/approximations.h"
#include "ops/float.h"
#include "ops/float_lane.h"
#include "ops/lanes.h"

namespace ptxrun {
namespace {

// The unordered forms are true for NaN too.
enum class Compare : uint8_t { Eq, Ne, Lt, Le, Gt, Ge, Equ, Neu, Ltu, Leu, Gtu, Geu, Num, Nan };
enum class Combine : uint8_t { None, And, Or, Xor };

struct CompareModifiers {
  Combine combine;
  bool ftz;
  bool pair;          // f16x2: the halves give p and q
  bool float_result;  // set
};

template <Compare kCompare, class T>
bool compare(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    const bool unordered = a != a || b != b;
    if constexpr (kCompare == Compare::Num) return !unordered;
    if constexpr (kCompare == Compare::Nan) return unordered;
    if constexpr (kCompare == Compare::Ne) return !unordered && a != b;
    if constexpr (kCompare == Compare::Equ) return unordered || a == b;
    if constexpr (kCompare == Compare::Neu) return a != b;
    if constexpr (kCompare == Compare::Ltu) return unordered || a < b;
    if constexpr (kCompare == Compare::Leu) return unordered || a <= b;
    if constexpr (kCompare == Compare::Gtu) return unordered || a > b;
    if constexpr (kCompare == Compare::Geu) return unordered || a >= b;
  }
  if constexpr (kCompare == Compare::Eq) return a == b;
  if constexpr (kCompare == Compare::Ne) return a != b;
  if constexpr (kCompare == Compare::Lt) return a < b;
  if constexpr (kCompare == Compare::Le) return a <= b;
  if constexpr (kCompare == Compare::Gt) return a > b;
  return a >= b;
}

LaneMask combine(Combine op, LaneMask a, LaneMask b) {
  switch (op) {
    case Combine::And:
      return a & b;
    case Combine::Or:
      return a | b;
    case Combine::Xor:
      return a ^ b;
    default:
      return a;
  }
}

// op(0) = p, op(1) = q or none, op(2), op(3) = sources, op(4) = c.
void set_results(Warp& warp, const Instr& instr, LaneMask holds, LaneMask active) {
  const Combine op = instr.mods<CompareModifiers>().combine;
  const LaneMask c = op == Combine::None ? 0 : warp.predicate(instr.op(4));
  const LaneMask p = combine(op, holds, c), q = combine(op, ~holds, c);
  warp.set_predicate(instr.op(0), p, active);
  warp.set_predicate(instr.op(1), q, active);
}

template <class T, Compare kCompare>
LaneMask holding(Warp& warp, const Instr& instr, LaneMask active) {
  const auto* a = warp.in<Stored<T>>(instr.op(2));
  const auto* b = warp.in<Stored<T>>(instr.op(3));
  LaneMask holds = 0;
  if constexpr (std::is_same_v<T, float>) {
    if (instr.mods<CompareModifiers>().ftz) {
      for_lanes(active,
                [&](int lane) { holds |= LaneMask{compare<kCompare>(flush(a[lane]), flush(b[lane]))} << lane; });
      return holds;
    }
  }
  for_lanes(active, [&](int lane) {
    holds |= LaneMask{compare<kCompare>(from_stored<T>(a[lane]), from_stored<T>(b[lane]))} << lane;
  });
  return holds;
}

template <class T, Compare kCompare>
Step run_setp(Warp& warp, const Instr& instr, LaneMask active) {
  set_results(warp, instr, holding<T, kCompare>(warp, instr, active), active);
  return Step::Next;
}

// 16-bit floats: compared in double precision.
template <bool kBf16, Compare kCompare>
Step run_setp_half(Warp& warp, const Instr& instr, LaneMask active) {
  constexpr const model::FloatFormat& kFormat = kBf16 ? model::kBf16 : model::kF16;
  const auto& mods = instr.mods<CompareModifiers>();
  const uint32_t* a = warp.in<uint32_t>(instr.op(2));
  const uint32_t* b = warp.in<uint32_t>(instr.op(3));
  const auto value = [&](uint32_t bits) {
    if (mods.ftz && (bits & kFormat.infinity()) == 0) bits &= 0x8000;
    return model::to_double(kFormat, bits & 0xFFFF);
  };
  LaneMask low = 0, high = 0;
  for_lanes(active, [&](int lane) {
    low |= LaneMask{compare<kCompare>(value(a[lane]), value(b[lane]))} << lane;
    if (mods.pair) high |= LaneMask{compare<kCompare>(value(a[lane] >> 16), value(b[lane] >> 16))} << lane;
  });
  if (!mods.pair) {
    set_results(warp, instr, low, active);
    return Step::Next;
  }
  const LaneMask c = mods.combine == Combine::None ? 0 : warp.predicate(instr.op(4));
  warp.set_predicate(instr.op(0), combine(mods.combine, low, c), active);
  warp.set_predicate(instr.op(1), combine(mods.combine, high, c), active);
  return Step::Next;
}

template <class T, Compare kCompare>
Step run_set(Warp& warp, const Instr& instr, LaneMask active) {
  const auto& mods = instr.mods<CompareModifiers>();
  LaneMask holds = holding<T, kCompare>(warp, instr, active);
  if (mods.combine != Combine::None) holds = combine(mods.combine, holds, warp.predicate(instr.op(4)));
  uint32_t* d = warp.out<uint32_t>(instr.op(0));
  const uint32_t yes = mods.float_result ? std::bit_cast<uint32_t>(1.0f) : ~0u;
  for_lanes(active, [&](int lane) { d[lane] = holds >> lane & 1 ? yes : 0; });
  return Step::Next;
}

constexpr size_t kIntegerCompares = 6, kCompares = 14;

template <class T, bool kSet, size_t... i>
Handler choose(Compare op, std::index_sequence<i...>) {
  static constexpr Handler table[] = {kSet ? run_set<T, Compare{i}> : run_setp<T, Compare{i}>...};
  return static_cast<size_t>(op) < sizeof...(i) ? table[static_cast<size_t>(op)] : nullptr;
}

template <class T, bool kSet>
Handler compare_handler(Compare op) {
  constexpr size_t kCount = std::is_floating_point_v<T> ? kCompares : kIntegerCompares;
  return choose<T, kSet>(op, std::make_index_sequence<kCount>());
}

template <bool kBf16, size_t... i>
Handler choose_half(Compare op, std::index_sequence<i...>) {
  static constexpr Handler table[] = {run_setp_half<kBf16, Compare{i}>...};
  return table[static_cast<size_t>(op)];
}

template <bool kSet>
Handler handler_of(Type type, Compare op) {
  if (type == Type::F32) return compare_handler<float, kSet>(op);
  if (type == Type::F64) return compare_handler<double, kSet>(op);
  Handler handler = nullptr;
  with_integer(type, [&](auto zero) { handler = compare_handler<decltype(zero), kSet>(op); });
  return handler;
}

// lo, ls, hi, hs: the unsigned forms under their other names.
Compare take_compare(Decoder& d) {
  const int unsigned_form = d.modifiers().take_one({"lo", "ls", "hi", "hs"});
  if (unsigned_form >= 0) return static_cast<Compare>(static_cast<int>(Compare::Lt) + unsigned_form);
  const int op = d.modifiers().take_one(
      {"eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"});
  if (op < 0) d.unknown();
  return static_cast<Compare>(op);
}

CompareModifiers take_modifiers(Decoder& d) {
  CompareModifiers mods{};
  mods.combine = static_cast<Combine>(d.modifiers().take_one({"and", "or", "xor"}) + 1);
  mods.ftz = d.modifiers().take("ftz");
  return mods;
}

void decode_setp(Decoder& d, Instr& out) {
  const Compare op = take_compare(d);
  CompareModifiers mods = take_modifiers(d);
  const Type type = d.modifiers().take_type();
  const ast::Operand& target = d.operand(0);
  const bool two = target.kind == ast::OperandKind::Pair;
  d.write_predicate(two ? target.parts[0] : target);
  two ? d.write_predicate(target.parts[1]) : d.none();
  d.read(d.operand(1), type_bits(type));
  d.read(d.operand(2), type_bits(type));
  if (mods.combine != Combine::None) d.read_predicate(d.operand(3));
  mods.pair = type == Type::F16x2 || type == Type::BF16x2;
  out.set_mods(mods);
  if (is_half(type)) {
    const bool bf16 = type == Type::BF16 || type == Type::BF16x2;
    out.handler = bf16 ? choose_half<true>(op, std::make_index_sequence<kCompares>())
                       : choose_half<false>(op, std::make_index_sequence<kCompares>());
  } else {
    out.handler = handler_of<false>(type, op);
  }
  if (out.handler == nullptr) d.unknown();
  d.finish(mods.combine == Combine::None ? 3 : 4);
}

void decode_set(Decoder& d, Instr& out) {
  const Compare op = take_compare(d);
  CompareModifiers mods = take_modifiers(d);
  const Type result = d.modifiers().take_type(), type = d.modifiers().take_type();
  if (result != Type::U32 && result != Type::S32 && result != Type::F32) d.unknown();
  mods.float_result = result == Type::F32;
  out.set_mods(mods);
  out.handler = handler_of<true>(type, op);
  if (out.handler == nullptr) d.unknown();
  d.write(d.operand(0), 32);
  d.none();
  d.read(d.operand(1), type_bits(type));
  d.read(d.operand(2), type_bits(type));
  if (mods.combine != Combine::None) d.read_predicate(d.operand(3));
  d.finish(mods.combine == Combine::None ? 3 : 4);
}

// selp, slct ------------------------------------------------------------------------------------------------------

template <class T>
Step run_selp(Warp& warp, const Instr& instr, LaneMask active) {
  const T* a = warp.in<T>(instr.op(1));
  const T* b = warp.in<T>(instr.op(2));
  T* d = warp.out<T>(instr.op(0));
  const LaneMask choice = warp.predicate(instr.op(3));
  // Only the chosen source has to be defined.
  warp.copy_readiness(instr, instr.op(1), instr.op(0), active & choice);
  warp.copy_readiness(instr, instr.op(2), instr.op(0), active & ~choice);
  map_lanes(active, [&](int lane) { d[lane] = choice >> lane & 1 ? a[lane] : b[lane]; });
  return Step::Next;
}

void decode_selp(Decoder& d, Instr& out) {
  const Type type = d.modifiers().take_type();
  const int bits = type_bits(type);
  if (bits < 16 || bits > 64) d.unknown();
  out.handler = bits == 64 ? run_selp<uint64_t> : run_selp<uint32_t>;
  if (d.operand(0).kind != ast::OperandKind::Name) d.unknown();
  for (size_t i = 0; i < 3; ++i) d.untracked_vector(d.operand(i), bits, 1);
  d.read_predicate(d.operand(3));
  d.finish(4);
}

template <class T, bool kFloat>
Step run_slct(Warp& warp, const Instr& instr, LaneMask active) {
  const T* a = warp.in<T>(instr.op(1));
  const T* b = warp.in<T>(instr.op(2));
  T* d = warp.out<T>(instr.op(0));
  for_lanes(active, [&](int lane) {
    const bool first = kFloat ? warp.in<float>(instr.op(3))[lane] >= 0 : warp.in<int32_t>(instr.op(3))[lane] >= 0;
    d[lane] = first ? a[lane] : b[lane];
  });
  return Step::Next;
}

void decode_slct(Decoder& d, Instr& out) {
  const Type type = d.modifiers().take_type(), selector = d.modifiers().take_type();
  const int bits = type_bits(type);
  if (bits < 16 || bits > 64 || (selector != Type::S32 && selector != Type::F32)) d.unknown();
  if (selector == Type::S32) {
    out.handler = bits == 64 ? run_slct<uint64_t, false> : run_slct<uint32_t, false>;
  } else {
    out.handler = bits == 64 ? run_slct<uint64_t, true> : run_slct<uint32_t, true>;
  }
  d.write(d.operand(0), bits);
  d.read(d.operand(1), bits);
  d.read(d.operand(2), bits);
  d.read(d.operand(3), 32);
  d.finish(4);
}

const Family families[] = {{"setp", decode_setp}, {"set", decode_set}, {"selp", decode_selp}, {"slct", decode_slct}};

}  // namespace
}  // namespace ptxrun

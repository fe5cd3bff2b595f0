// Among the lanes of a warp: shfl, vote, match, redux, elect, activemask, bar.warp.sync.
#include <algorithm>
#include <bit>
#include <cmath>

#include "exec/machine.h"
#include "ops/float_lane.h"
#include "ops/lanes.h"

namespace ptxrun {
namespace {

void set_members(Instr& out, int operand) {
  out.op_class = OpClass::Warp;
  out.convergence = Convergence::Members;
  out.member_operand = static_cast<uint8_t>(operand);
}

// shfl ------------------------------------------------------------------------------------------------------------

enum class Shuffle : uint8_t { Up, Down, Bfly, Idx };

struct ShuffleModifiers {
  Shuffle mode;
};

// Source lane of the PTX ISA's pseudo-code, and whether it lies in the segment.
int shuffle_source(Shuffle mode, int lane, uint32_t b, uint32_t c, bool* inside) {
  const auto by = static_cast<int>(b & 31), clamp = static_cast<int>(c & 31), mask = static_cast<int>(c >> 8 & 31);
  const int max_lane = (lane & mask) | (clamp & ~mask), min_lane = lane & mask;
  int source = 0;
  switch (mode) {
    case Shuffle::Up:
      source = lane - by;
      *inside = source >= max_lane;
      break;
    case Shuffle::Down:
      source = lane + by;
      *inside = source <= max_lane;
      break;
    case Shuffle::Bfly:
      source = lane ^ by;
      *inside = source <= max_lane;
      break;
    default:
      source = min_lane | (by & ~mask);
      *inside = source <= max_lane;
  }
  return *inside ? source : lane;
}

// op(0) = d, op(1) = p or none, op(2) = a, op(3) = b, op(4) = c, op(5) = members.
Step run_shfl(Warp& warp, const Instr& instr, LaneMask active) {
  const uint32_t* a = warp.in<uint32_t>(instr.op(2));
  const uint32_t* b = warp.in<uint32_t>(instr.op(3));
  const uint32_t* c = warp.in<uint32_t>(instr.op(4));
  const Shuffle mode = instr.mods<ShuffleModifiers>().mode;
  uint32_t values[kWarpLanes];
  LaneMask valid = 0, absent = 0;
  for_lanes(active, [&](int lane) {
    bool inside = false;
    const int source = shuffle_source(mode, lane, b[lane], c[lane], &inside);
    values[lane] = a[source];
    valid |= LaneMask{inside} << lane;
    if (!(active >> source & 1)) absent |= LaneMask{1} << lane;
  });
  if (absent) warp.report(code::kNotConverged, "a shuffle reads a lane that does not take part", absent);
  if (instr.op(0).kind != Operand::Kind::None) {
    uint32_t* d = warp.out<uint32_t>(instr.op(0));
    for_lanes(active, [&](int lane) { d[lane] = values[lane]; });
  }
  warp.set_predicate(instr.op(1), valid, active);
  return Step::Next;
}

void decode_shfl(Decoder& d, Instr& out) {
  if (!d.modifiers().take("sync")) d.unknown("shfl without .sync does not exist on these architectures");
  const int mode = d.modifiers().take_one({"up", "down", "bfly", "idx"});
  if (mode < 0 || d.modifiers().take_type() != Type::B32) d.unknown();
  const ast::Operand& target = d.operand(0);
  const bool pair = target.kind == ast::OperandKind::Pair;
  d.write(pair ? target.parts[0] : target, 32);
  pair ? d.write_predicate(target.parts[1]) : d.none();
  for (size_t i = 1; i <= 4; ++i) d.read(d.operand(i), 32);
  set_members(out, 5);
  out.set_mods(ShuffleModifiers{static_cast<Shuffle>(mode)});
  out.handler = run_shfl;
  d.finish(5);
}

// vote ------------------------------------------------------------------------------------------------------------

enum class Vote : uint8_t { All, Any, Uni, Ballot };

template <Vote kVote>
Step run_vote(Warp& warp, const Instr& instr, LaneMask active) {
  const LaneMask votes = warp.predicate(instr.op(1)) & active;
  if constexpr (kVote == Vote::Ballot) {
    uint32_t* d = warp.out<uint32_t>(instr.op(0));
    for_lanes(active, [&](int lane) { d[lane] = votes; });
  } else {
    const bool all = votes == active, none = votes == 0;
    const bool holds = kVote == Vote::All ? all : kVote == Vote::Any ? !none : all || none;
    warp.set_predicate(instr.op(0), holds ? kAllLanes : 0, active);
  }
  return Step::Next;
}

void decode_vote(Decoder& d, Instr& out) {
  if (!d.modifiers().take("sync")) d.unknown("vote without .sync does not exist on these architectures");
  const int mode = d.modifiers().take_one({"all", "any", "uni", "ballot"});
  const Type type = d.modifiers().take_type();
  if (mode < 0 || type != (mode == 3 ? Type::B32 : Type::Pred)) d.unknown();
  constexpr Handler kHandlers[] = {run_vote<Vote::All>, run_vote<Vote::Any>, run_vote<Vote::Uni>,
                                   run_vote<Vote::Ballot>};
  mode == 3 ? d.write(d.operand(0), 32) : d.write_predicate(d.operand(0));
  d.read_predicate(d.operand(1));
  d.read(d.operand(2), 32);
  set_members(out, 2);
  out.handler = kHandlers[mode];
  d.finish(3);
}

// match -----------------------------------------------------------------------------------------------------------

// op(0) = d, op(1) = p or none, op(2) = a, op(3) = members.
template <class T>
Step run_match_any(Warp& warp, const Instr& instr, LaneMask active) {
  const T* a = warp.in<T>(instr.op(2));
  uint32_t* d = warp.out<uint32_t>(instr.op(0));
  for_lanes(active, [&](int lane) {
    LaneMask same = 0;
    for_lanes(active, [&](int other) { same |= LaneMask{a[other] == a[lane]} << other; });
    d[lane] = same;
  });
  return Step::Next;
}

template <class T>
Step run_match_all(Warp& warp, const Instr& instr, LaneMask active) {
  const T* a = warp.in<T>(instr.op(2));
  const T first = a[std::countr_zero(active)];
  bool all = true;
  for_lanes(active, [&](int lane) { all &= a[lane] == first; });
  if (instr.op(0).kind != Operand::Kind::None) {
    uint32_t* d = warp.out<uint32_t>(instr.op(0));
    for_lanes(active, [&](int lane) { d[lane] = all ? active : 0; });
  }
  warp.set_predicate(instr.op(1), all ? kAllLanes : 0, active);
  return Step::Next;
}

void decode_match(Decoder& d, Instr& out) {
  const bool any = d.modifiers().take_one({"any", "all"}) == 0;
  const Type type = d.modifiers().take_type();
  if (!d.modifiers().take("sync") || (type != Type::B32 && type != Type::B64)) d.unknown();
  const bool wide = type == Type::B64;
  if (any) {
    out.handler = wide ? run_match_any<uint64_t> : run_match_any<uint32_t>;
  } else {
    out.handler = wide ? run_match_all<uint64_t> : run_match_all<uint32_t>;
  }
  const ast::Operand& target = d.operand(0);
  const bool pair = target.kind == ast::OperandKind::Pair;
  d.write(pair ? target.parts[0] : target, 32);
  pair ? d.write_predicate(target.parts[1]) : d.none();
  d.read(d.operand(1), type_bits(type));
  d.read(d.operand(2), 32);
  set_members(out, 3);
  d.finish(3);
}

// redux -----------------------------------------------------------------------------------------------------------

enum class Reduce : uint8_t { Add, Min, Max, And, Or, Xor };

template <class T, Reduce kReduce>
T reduce(T a, T b) {
  if constexpr (kReduce == Reduce::Add) return static_cast<T>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
  if constexpr (kReduce == Reduce::Min) return std::min(a, b);
  if constexpr (kReduce == Reduce::Max) return std::max(a, b);
  if constexpr (kReduce == Reduce::And) return a & b;
  if constexpr (kReduce == Reduce::Or) return a | b;
  return a ^ b;
}

template <class T, Reduce kReduce>
Step run_redux(Warp& warp, const Instr& instr, LaneMask active) {
  const T* a = warp.in<T>(instr.op(1));
  T* d = warp.out<T>(instr.op(0));
  T value = a[std::countr_zero(active)];
  for_lanes(active & (active - 1), [&](int lane) { value = reduce<T, kReduce>(value, a[lane]); });
  for_lanes(active, [&](int lane) { d[lane] = value; });
  return Step::Next;
}

struct FloatReduceModifiers {
  bool is_max, abs, nan;
};

Step run_redux_f32(Warp& warp, const Instr& instr, LaneMask active) {
  const auto& mods = instr.mods<FloatReduceModifiers>();
  const float* a = warp.in<float>(instr.op(1));
  float* d = warp.out<float>(instr.op(0));
  float best = canonical_nan();
  bool has_nan = false;
  for_lanes(active, [&](int lane) {
    const float x = mods.abs ? std::fabs(a[lane]) : a[lane];
    has_nan |= x != x;
    if (x != x) return;
    const bool below = x < best || (x == best && std::signbit(x) && !std::signbit(best));
    const bool above = x > best || (x == best && !std::signbit(x) && std::signbit(best));
    if (best != best || (mods.is_max ? above : below)) best = x;
  });
  if (mods.nan && has_nan) best = canonical_nan();
  for_lanes(active, [&](int lane) { d[lane] = best; });
  return Step::Next;
}

Handler redux_handler(int op, Type type) {
  if (type == Type::S32) {
    constexpr Handler kHandlers[] = {run_redux<int32_t, Reduce::Add>, run_redux<int32_t, Reduce::Min>,
                                     run_redux<int32_t, Reduce::Max>};
    return op < 3 ? kHandlers[op] : nullptr;
  }
  constexpr Handler kHandlers[] = {run_redux<uint32_t, Reduce::Add>, run_redux<uint32_t, Reduce::Min>,
                                   run_redux<uint32_t, Reduce::Max>, run_redux<uint32_t, Reduce::And>,
                                   run_redux<uint32_t, Reduce::Or>,  run_redux<uint32_t, Reduce::Xor>};
  if (type == Type::U32) return op < 3 ? kHandlers[op] : nullptr;
  return type == Type::B32 && op >= 3 ? kHandlers[op] : nullptr;
}

void decode_redux(Decoder& d, Instr& out) {
  const int op = d.modifiers().take_one({"add", "min", "max", "and", "or", "xor"});
  const Type type = d.modifiers().take_type();
  if (!d.modifiers().take("sync") || op < 0) d.unknown();
  if (type == Type::F32) {
    if (op != 1 && op != 2) d.unknown();
    const bool abs = d.modifiers().take("abs");
    out.set_mods(FloatReduceModifiers{op == 2, abs, d.modifiers().take("NaN")});
    out.handler = run_redux_f32;
  } else {
    out.handler = redux_handler(op, type);
  }
  if (out.handler == nullptr) d.unknown();
  d.write(d.operand(0), 32);
  d.read(d.operand(1), 32);
  d.read(d.operand(2), 32);
  set_members(out, 2);
  d.finish(3);
}

// elect, activemask -----------------------------------------------------------------------------------------------

Step run_elect(Warp& warp, const Instr& instr, LaneMask active) {
  const int leader = std::countr_zero(active);
  if (instr.op(0).kind != Operand::Kind::None) {
    uint32_t* d = warp.out<uint32_t>(instr.op(0));
    for_lanes(active, [&](int lane) { d[lane] = static_cast<uint32_t>(leader); });
  }
  warp.set_predicate(instr.op(1), LaneMask{1} << leader, active);
  return Step::Next;
}

void decode_elect(Decoder& d, Instr& out) {
  const ast::Operand& target = d.operand(0);
  if (!d.modifiers().take("sync") || target.kind != ast::OperandKind::Pair) d.unknown();
  d.write(target.parts[0], 32);
  d.write_predicate(target.parts[1]);
  d.read(d.operand(1), 32);
  set_members(out, 2);
  out.handler = run_elect;
  d.finish(2);
}

Step run_activemask(Warp& warp, const Instr& instr, LaneMask active) {
  uint32_t* d = warp.out<uint32_t>(instr.op(0));
  for_lanes(active, [&](int lane) { d[lane] = active; });
  return Step::Next;
}

void decode_activemask(Decoder& d, Instr& out) {
  out.op_class = OpClass::Warp;
  if (d.modifiers().take_type() != Type::B32) d.unknown();
  d.write(d.operand(0), 32);
  out.handler = run_activemask;
  d.finish(1);
}

// The lanes of a warp are one agent: that they have met is all.
Step run_nothing(Warp&, const Instr&, LaneMask) { return Step::Next; }

void decode_bar_warp(Decoder& d, Instr& out) {
  if (!d.modifiers().take("warp") || !d.modifiers().take("sync")) d.unknown();
  d.read(d.operand(0), 32);
  set_members(out, 0);
  out.op_class = OpClass::Barrier;
  out.handler = run_nothing;
  d.finish(1);
}

const Family families[] = {{"bar.warp", decode_bar_warp},    {"shfl", decode_shfl},   {"vote", decode_vote},
                           {"match", decode_match},          {"redux", decode_redux}, {"elect", decode_elect},
                           {"activemask", decode_activemask}};

}  // namespace
}  // namespace ptxrun

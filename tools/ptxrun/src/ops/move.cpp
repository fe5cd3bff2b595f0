// mov, with packing and unpacking of vectors, and the registers that tell the time.
#include <algorithm>
#include <cstring>

#include "exec/machine.h"
#include "memory/memory.h"
#include "ops/lanes.h"

namespace ptxrun {
namespace {

template <int kWords>
Step run_copy(Warp& warp, const Instr& instr, LaneMask active) {
  using T = std::conditional_t<kWords == 1, uint32_t, uint64_t>;
  warp.copy_readiness(instr, instr.op(1), instr.op(0), active);
  const T* a = warp.in<T>(instr.op(1));
  T* d = warp.out<T>(instr.op(0));
  map_lanes(active, [&](int lane) { d[lane] = a[lane]; });
  if constexpr (kWords == 4) {
    const uint64_t* high = warp.in_high(instr.op(1));
    uint64_t* to = warp.out_high(instr.op(0));
    for_lanes(active, [&](int lane) { to[lane] = high[lane]; });
  }
  return Step::Next;
}

Step run_predicate(Warp& warp, const Instr& instr, LaneMask active) {
  warp.set_predicate(instr.op(0), warp.predicate(instr.op(1)), active);
  return Step::Next;
}

// Vectors ---------------------------------------------------------------------------------------------------------

struct VectorModifiers {
  uint8_t parts, part_bits;
};

void read_bits(Warp& warp, const Operand& op, int lane, int bits, uint8_t* to) {
  if (bits == 128) {
    std::memcpy(to, &warp.in<uint64_t>(op)[lane], 8);
    std::memcpy(to + 8, &warp.in_high(op)[lane], 8);
  } else if (bits == 64) {
    std::memcpy(to, &warp.in<uint64_t>(op)[lane], 8);
  } else {
    std::memcpy(to, &warp.in<uint32_t>(op)[lane], static_cast<size_t>(bits) / 8);
  }
}

void write_bits(Warp& warp, const Operand& op, int lane, int bits, const uint8_t* from) {
  if (op.kind == Operand::Kind::None) return;
  if (bits == 128) {
    std::memcpy(&warp.out<uint64_t>(op)[lane], from, 8);
    std::memcpy(&warp.out_high(op)[lane], from + 8, 8);
  } else if (bits == 64) {
    std::memcpy(&warp.out<uint64_t>(op)[lane], from, 8);
  } else {
    uint32_t word = 0;
    std::memcpy(&word, from, static_cast<size_t>(bits) / 8);
    warp.out<uint32_t>(op)[lane] = word;
  }
}

// op(0) is the whole, the parts follow.
Step run_pack(Warp& warp, const Instr& instr, LaneMask active) {
  const auto [parts, bits] = instr.mods<VectorModifiers>();
  for_lanes(active, [&](int lane) {
    uint8_t bytes[16];
    for (int i = 0; i < parts; ++i) read_bits(warp, instr.op(1 + i), lane, bits, bytes + i * bits / 8);
    write_bits(warp, instr.op(0), lane, parts * bits, bytes);
  });
  return Step::Next;
}

Step run_unpack(Warp& warp, const Instr& instr, LaneMask active) {
  const auto [parts, bits] = instr.mods<VectorModifiers>();
  for_lanes(active, [&](int lane) {
    uint8_t bytes[16];
    read_bits(warp, instr.op(0), lane, parts * bits, bytes);
    for (int i = 0; i < parts; ++i) write_bits(warp, instr.op(1 + i), lane, bits, bytes + i * bits / 8);
  });
  return Step::Next;
}

void decode_vector(Decoder& d, Instr& out, int bits, bool packs) {
  const ast::Operand& vector = d.operand(packs ? 1 : 0);
  const auto parts = static_cast<int>(vector.parts.size());
  if (parts < 2 || bits % parts != 0 || bits / parts < 8) d.unknown();
  out.set_mods(VectorModifiers{static_cast<uint8_t>(parts), static_cast<uint8_t>(bits / parts)});
  out.handler = packs ? run_pack : run_unpack;
  packs ? d.write(d.operand(0), bits) : d.read(d.operand(1), bits);
  packs ? d.read_vector(vector, bits / parts) : d.write_vector(vector, bits / parts);
  d.finish(2);
}

// Time ------------------------------------------------------------------------------------------------------------

enum class Timer : uint8_t { Low, High };

// An instruction of the machine counts as a clock cycle and as a nanosecond.
template <class T, Timer kPart>
Step run_time(Warp& warp, const Instr& instr, LaneMask active) {
  T* d = warp.out<T>(instr.op(0));
  const uint64_t now = warp.machine.now();
  ++warp.polls;
  for_lanes(active, [&](int lane) { d[lane] = static_cast<T>(kPart == Timer::High ? now >> 32 : now); });
  warp.machine.tick(warp, 0);
  return Step::Next;
}

bool decode_time(Decoder& d, Instr& out) {
  const std::string& name = d.operand(1).name;
  if (name == "%clock" || name == "%globaltimer_lo") {
    out.handler = run_time<uint32_t, Timer::Low>;
    d.write(d.operand(0), 32);
  } else if (name == "%clock_hi" || name == "%globaltimer_hi") {
    out.handler = run_time<uint32_t, Timer::High>;
    d.write(d.operand(0), 32);
  } else if (name == "%clock64" || name == "%globaltimer") {
    out.handler = run_time<uint64_t, Timer::Low>;
    d.write(d.operand(0), 64);
  } else {
    return false;
  }
  out.op_class = OpClass::Special;
  d.finish(2);
  return true;
}

void decode_mov(Decoder& d, Instr& out) {
  const Type type = d.modifiers().take_type();
  const int bits = type_bits(type);
  if (type == Type::Pred) {
    out.handler = run_predicate;
    d.write_predicate(d.operand(0));
    d.read_predicate(d.operand(1));
    return d.finish(2);
  }
  if (bits < 16) d.unknown();
  if (d.operand(1).kind == ast::OperandKind::Vector) return decode_vector(d, out, bits, true);
  if (d.operand(0).kind == ast::OperandKind::Vector) return decode_vector(d, out, bits, false);
  if (d.operand(1).kind == ast::OperandKind::Name && decode_time(d, out)) return;
  out.handler = bits == 128 ? run_copy<4> : bits == 64 ? run_copy<2> : run_copy<1>;
  if (d.is_immediate(d.operand(0)) || d.operand(0).kind != ast::OperandKind::Name) d.unknown();
  d.untracked_vector(d.operand(0), bits, 1);
  d.untracked_vector(d.operand(1), bits, 1);
  d.finish(2);
}

// isspacep --------------------------------------------------------------------------------------------------------

struct Window {
  uint64_t base, bytes;
};

Step run_isspacep(Warp& warp, const Instr& instr, LaneMask active) {
  const Window window = instr.mods<Window>();
  const uint64_t* a = warp.in<uint64_t>(instr.op(1));
  LaneMask inside = 0;
  for_lanes(active, [&](int lane) { inside |= LaneMask{a[lane] - window.base < window.bytes} << lane; });
  warp.set_predicate(instr.op(0), inside, active);
  return Step::Next;
}

// shared::cta is the window of the own CTA only, which depends on its rank.
Step run_is_own_shared(Warp& warp, const Instr& instr, LaneMask active) {
  const uint64_t* a = warp.in<uint64_t>(instr.op(1));
  const uint64_t base = warp.cta.shared.base;
  LaneMask inside = 0;
  for_lanes(active, [&](int lane) { inside |= LaneMask{a[lane] - base < uint64_t{1} << kSharedRankShift} << lane; });
  warp.set_predicate(instr.op(0), inside, active);
  return Step::Next;
}

void decode_isspacep(Decoder& d, Instr& out) {
  const int space = d.modifiers().take_one(
      {"global", "const", "local", "param", "param::entry", "shared::cluster", "shared", "shared::cta"});
  if (space < 0) d.unknown();
  constexpr Window kWindows[] = {{kGlobalBase, ~uint64_t{0} - kGlobalBase},
                                 {0, 0},
                                 {kLocalWindow, kWindowSize},
                                 {kParamWindow, kWindowSize},
                                 {kParamWindow, kWindowSize},
                                 {kSharedWindow, kWindowSize}};
  out.handler = space < 6 ? run_isspacep : run_is_own_shared;
  out.set_mods(space < 6 ? kWindows[space] : Window{});
  d.write_predicate(d.operand(0));
  d.read(d.operand(1), 64);
  d.finish(2);
}

const Family families[] = {{"mov", decode_mov}, {"isspacep", decode_isspacep}};

}  // namespace
}  // namespace ptxrun

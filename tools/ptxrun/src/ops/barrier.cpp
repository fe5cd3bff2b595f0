// bar, barrier: the named barriers of a CTA.
#include <array>
#include <bit>
#include <memory>
#include <string>

#include "check/checks.h"
#include "check/finding.h"
#include "decode/decoder.h"
#include "decode/registry.h"
#include "exec/warp.h"
#include "ops/mbarrier.h"
#include "ops/spaces.h"

namespace ptxrun::ops {

namespace {

constexpr uint32_t kBarriers = 16;

enum class Reduction : uint8_t { None, And, Or, Popc };

struct Mods {
  bool waits = true;
  Reduction reduction = Reduction::None;
  int8_t id = -1, threads = -1, source = -1, result = -1;  // operands
};

struct NamedBarrier : WaitObject {
  Cta* cta = nullptr;
  uint32_t number = 0;
  uint32_t threads = 0;                 // asked for in this phase; 0: all of the CTA
  std::array<LaneMask, 32> lanes = {};  // arrived, by warp
  uint32_t arrived_warps = 0;           // bit mask: all their live lanes have arrived
  uint64_t phase = 0;
  uint32_t count = 0;  // lanes whose predicate holds
  uint32_t total = 0;  // lanes that took part
  struct Result {
    uint32_t count, total;
  } results[2] = {};  // by parity of the phase
  check::View arriving, done;
  Site first;

  uint32_t needed_warps() const;
  bool open() const { return total != 0 || arrived_warps != 0; }
  std::string describe() const override;
};

struct CtaBarriers : Extension<Cta> {
  explicit CtaBarriers(Cta& cta);
  std::array<NamedBarrier, kBarriers> at;
};

uint32_t NamedBarrier::needed_warps() const {
  return threads ? threads / kWarpLanes : static_cast<uint32_t>(cta->warps.size());
}

std::string NamedBarrier::describe() const {
  std::string text = "barrier " + std::to_string(number) + " of CTA " + std::to_string(cta->linear) + ", " +
                     std::to_string(std::popcount(arrived_warps)) + " of " + std::to_string(needed_warps()) +
                     " warps have arrived:";
  for (uint32_t warp = 0; warp < cta->warps.size(); ++warp) {
    if (arrived_warps >> warp & 1) text += " " + std::to_string(warp);
  }
  return text;
}

void end_phase(NamedBarrier& barrier) {
  barrier.results[barrier.phase & 1] = {barrier.count, barrier.total};
  barrier.done = barrier.arriving;
  barrier.arriving = check::View();
  barrier.lanes.fill(0);
  barrier.arrived_warps = barrier.threads = barrier.count = barrier.total = 0;
  barrier.wake_tag(barrier.phase++);
}

// Warps that have exited are not waited for, unless the barrier counts threads.
bool complete(const NamedBarrier& barrier, const Warp* ending) {
  if (barrier.threads) return std::popcount(barrier.arrived_warps) >= static_cast<int>(barrier.needed_warps());
  for (const auto& warp : barrier.cta->warps) {
    if (warp.get() != ending && warp->live && !(barrier.arrived_warps >> warp->index & 1)) return false;
  }
  return true;
}

// A warp's exit can complete a barrier of all threads.
struct BarrierUser : Extension<Warp> {
  explicit BarrierUser(Warp&) {}
  void on_end(Warp& warp) override {
    for (NamedBarrier& barrier : warp.cta.ext<CtaBarriers>().at) {
      if (barrier.open() && barrier.threads == 0 && complete(barrier, &warp)) end_phase(barrier);
    }
  }
};

CtaBarriers::CtaBarriers(Cta& cta) {
  for (uint32_t i = 0; i < kBarriers; ++i) {
    at[i].cta = &cta;
    at[i].number = i;
  }
  for (auto& warp : cta.warps) warp->ext<BarrierUser>();
}

bool check_threads(Warp& warp, NamedBarrier& barrier, uint32_t threads, LaneMask lanes) {
  if (threads % kWarpLanes) {
    warp.report(code::kBadOperand, "a barrier of " + std::to_string(threads) + " threads: not a multiple of 32", lanes);
    return false;
  }
  if (barrier.open() && barrier.threads != threads) {
    warp.machine.report(code::kBarrierMismatch,
                        barrier.describe() + ": this warp asks for " + std::to_string(threads) + " threads",
                        warp.site(lanes), nullptr, 0, &barrier.first);
    return false;
  }
  if (barrier.lanes[warp.index] & lanes) {
    warp.report(code::kBarrierMismatch, barrier.describe() + ": this warp arrives a second time", lanes);
    return false;
  }
  return true;
}

void finish_wait(Warp& warp, const Instr& instr, const NamedBarrier& barrier, uint64_t phase, LaneMask lanes) {
  const Mods& mods = instr.mods<Mods>();
  check::checks(warp.machine).acquire(warp, barrier.done);
  if (mods.reduction == Reduction::None) return;
  const NamedBarrier::Result& result = barrier.results[phase & 1];
  if (mods.reduction == Reduction::Popc) {
    for_lanes(lanes, [&](int lane) { set_lane_value(warp, instr.op(mods.result), lane, result.count); });
    return;
  }
  const bool holds = mods.reduction == Reduction::And ? result.count == result.total : result.count != 0;
  warp.set_predicate(instr.op(mods.result), holds ? lanes : 0, lanes);
}

// Lanes of one barrier. True if they go on.
bool arrive(Warp& warp, const Instr& instr, NamedBarrier& barrier, uint32_t threads, LaneMask lanes) {
  const Mods& mods = instr.mods<Mods>();
  if (!check_threads(warp, barrier, threads, lanes)) return true;
  note_progress(warp.machine);
  if (!barrier.open()) barrier.first = warp.site(lanes);
  barrier.threads = threads;
  barrier.lanes[warp.index] |= lanes;
  barrier.total += static_cast<uint32_t>(std::popcount(lanes));
  if (mods.source >= 0) {
    barrier.count += static_cast<uint32_t>(std::popcount(warp.predicate(instr.op(mods.source)) & lanes));
  }
  check::checks(warp.machine).release(warp, barrier.arriving);
  if ((barrier.lanes[warp.index] & warp.live) == warp.live) barrier.arrived_warps |= 1u << warp.index;
  const uint64_t phase = barrier.phase;
  if (complete(barrier, nullptr)) {
    end_phase(barrier);
    if (mods.waits) finish_wait(warp, instr, barrier, phase, lanes);
    return true;
  }
  return !mods.waits;
}

Step run_barrier(Warp& warp, const Instr& instr, LaneMask active) {
  const Mods& mods = instr.mods<Mods>();
  while (active) {
    const int first = std::countr_zero(active);
    const uint64_t number = mods.id >= 0 ? lane_value(warp, instr.op(mods.id), first) : 0;
    LaneMask lanes = 0;
    for_lanes(active, [&](int lane) {
      if (mods.id < 0 || lane_value(warp, instr.op(mods.id), lane) == number) lanes |= LaneMask{1} << lane;
    });
    active &= ~lanes;
    if (number >= kBarriers) {
      warp.report(code::kBadOperand, "barrier " + std::to_string(number) + ": there are 16", lanes);
      continue;
    }
    NamedBarrier& barrier = warp.cta.ext<CtaBarriers>().at[number];
    if (warp.resumed()) {
      finish_wait(warp, instr, barrier, warp.resume_tag(), lanes);
      continue;
    }
    const auto threads = mods.threads >= 0 ? static_cast<uint32_t>(lane_value(warp, instr.op(mods.threads), first)) : 0;
    const uint64_t phase = barrier.phase;
    if (!arrive(warp, instr, barrier, threads, lanes)) warp.park(barrier, lanes, phase);
  }
  return Step::Next;
}

void decode_reduction(Decoder& d, Mods& mods) {
  const int kind = d.modifiers().take_one({"and", "or", "popc"});
  if (kind < 0) d.unknown();
  mods.reduction = kind == 0 ? Reduction::And : kind == 1 ? Reduction::Or : Reduction::Popc;
  if (!d.modifiers().take(mods.reduction == Reduction::Popc ? "u32" : "pred")) d.unknown();
  const ast::Operand& result = d.operand(0);
  mods.result =
      static_cast<int8_t>(mods.reduction == Reduction::Popc ? d.write(result, 32) : d.write_predicate(result));
  mods.id = static_cast<int8_t>(d.read(d.operand(1), 32));
  const size_t last = d.operand_count() - 1;
  if (last == 3) mods.threads = static_cast<int8_t>(d.read(d.operand(2), 32));
  mods.source = static_cast<int8_t>(d.read_predicate(d.operand(last)));
  d.finish(3, 4);
}

void decode_barrier(Decoder& d, Instr& out) {
  out.op_class = OpClass::Barrier;
  const bool is_bar = d.modifiers().mnemonic() == "bar";
  d.modifiers().take("cta");
  const bool aligned = d.modifiers().take("aligned");
  if (is_bar || aligned) out.convergence = Convergence::Aligned;
  Mods mods;
  const int kind = d.modifiers().take_one({"sync", "arrive", "red"});
  if (kind < 0) d.unknown();
  mods.waits = kind != 1;
  if (kind == 2) {
    decode_reduction(d, mods);
  } else {
    if (d.operand_count() > 0) mods.id = static_cast<int8_t>(d.read(d.operand(0), 32));
    if (d.operand_count() > 1) mods.threads = static_cast<int8_t>(d.read(d.operand(1), 32));
    d.finish(kind == 1 ? 2 : 1, 2);
  }
  out.set_mods(mods);
  out.handler = run_barrier;
}

const Family family({"bar", "barrier"}, decode_barrier);

}  // namespace

}  // namespace ptxrun::ops

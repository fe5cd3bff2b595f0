// mbarrier.*: the instructions.
#include "ops/mbarrier.h"

#include <algorithm>
#include <bit>

#include "check/finding.h"
#include "decode/decoder.h"
#include "decode/registry.h"
#include "exec/warp.h"
#include "ops/format.h"
#include "ops/spaces.h"

namespace ptxrun::ops {

namespace {

constexpr uint32_t kBytes = 8;
constexpr uint32_t kMaxCount = (1 << 20) - 1;

enum class Action : uint8_t { Init, Invalidate, Arrive, ExpectTx, CompleteTx, Wait, PendingCount };

struct Mods {
  Space space;
  Action action;
  bool relaxed = false;
  bool expects = false;      // arrive.expect_tx
  bool drops = false;        // arrive_drop
  bool no_complete = false;  // arrive.noComplete
  bool parity = false;
  bool suspends = false;  // try_wait
  int8_t value = -1;      // operand: count, bytes, state or parity; -1: one arrival
};

// The opaque state that an arrival returns.
uint64_t make_state(const Mbarrier& barrier) { return barrier.phase << 20 | barrier.pending; }
uint64_t phase_of_state(uint64_t state) { return state >> 20; }

Place locate(Warp& warp, Space space, uint64_t address, LaneMask lanes) {
  const Place place = warp.machine.memory.find(space, address, &warp.cta);
  if (!place.region || place.region->kind != Region::Kind::Shared || place.offset + kBytes > place.region->bytes) {
    warp.report(code::kOutOfBounds, "mbarrier address " + hex(address) + " is not in shared memory", lanes);
    return {};
  }
  if (place.offset % kBytes) {
    warp.report(code::kMisaligned, "mbarrier address " + hex(address) + " is not a multiple of 8", lanes);
    return {};
  }
  if (place.region->cta->exited()) {
    warp.report(code::kCluster, "the CTA of mbarrier address " + hex(address) + " has exited", lanes);
    return {};
  }
  return place;
}

Mbarrier& make(Cta& cta, uint32_t offset) {
  auto& barrier = cta.ext<MbarrierTable>().at[offset];
  if (!barrier) barrier = std::make_unique<Mbarrier>(cta, offset);
  return *barrier;
}

Step run_init(Warp& warp, const Instr& instr, LaneMask active) {
  const Mods& mods = instr.mods<Mods>();
  for_lanes(active, [&](int lane) {
    const LaneMask mask = LaneMask{1} << lane;
    const Place place = locate(warp, mods.space, lane_value(warp, instr.op(0), lane), mask);
    if (!place.region) return;
    Mbarrier& barrier = make(*place.region->cta, static_cast<uint32_t>(place.offset));
    const uint32_t count = static_cast<uint32_t>(lane_value(warp, instr.op(1), lane));
    if (barrier.valid) {
      warp.report(code::kInvalidMbarrier, barrier.describe() + ": initialised again without mbarrier.inval", mask);
    }
    if (count == 0 || count > kMaxCount) {
      warp.report(code::kBadOperand, "mbarrier.init with a count of " + std::to_string(count), mask);
      return;
    }
    check::checks(warp.machine).mbarrier_touch(warp, *place.region, place.offset, true);
    barrier.valid = true;
    barrier.published = false;
    barrier.expected = barrier.phase_expected = barrier.pending = count;
    barrier.tx = 0;
    barrier.first = barrier.phase;
    barrier.copies = barrier.observed = 0;
    barrier.waiting.clear();
    barrier.passed.clear();
    warp.ext<FreshMbarriers>().objects.push_back(&barrier);
    note_progress(warp.machine);
  });
  return Step::Next;
}

Step run_invalidate(Warp& warp, const Instr& instr, LaneMask active) {
  const Mods& mods = instr.mods<Mods>();
  for_lanes(active, [&](int lane) {
    const LaneMask mask = LaneMask{1} << lane;
    Mbarrier* barrier = find_mbarrier(warp, mods.space, lane_value(warp, instr.op(0), lane), mask);
    if (!barrier) return;
    if (barrier->tx != 0 || barrier->has_waiters()) {
      warp.report(code::kInvalidMbarrier, barrier->describe() + ": invalidated while in use", mask);
    }
    barrier->valid = false;
    check::checks(warp.machine).mbarrier_gone(warp, barrier->cta.shared, barrier->offset);
  });
  return Step::Next;
}

void arrive_one(Warp& warp, const Instr& instr, int lane, const check::View& view) {
  const Mods& mods = instr.mods<Mods>();
  const LaneMask mask = LaneMask{1} << lane;
  Mbarrier* barrier = find_mbarrier(warp, mods.space, lane_value(warp, instr.op(1), lane), mask);
  if (!barrier) return;
  const uint64_t value = mods.value >= 0 ? lane_value(warp, instr.op(mods.value), lane) : 1;
  const uint32_t count = mods.expects ? 1 : static_cast<uint32_t>(value);
  if (!mods.expects && (count == 0 || count > kMaxCount)) {
    warp.report(code::kBadOperand, "mbarrier.arrive with a count of " + std::to_string(count), mask);
    return;
  }
  if (mods.expects) mbarrier_expect_tx(*barrier, static_cast<uint32_t>(value), warp.site(mask));
  if (mods.no_complete && count >= barrier->pending) {
    warp.report(code::kOverArrival, barrier->describe() + ": arrive.noComplete would complete the phase", mask);
    return;
  }
  set_lane_value(warp, instr.op(0), lane, make_state(*barrier));
  if (mods.drops) barrier->expected -= std::min(barrier->expected, count);
  mbarrier_arrive(*barrier, count, view, warp.site(mask));
}

Step run_arrive(Warp& warp, const Instr& instr, LaneMask active) {
  check::View view;
  if (!instr.mods<Mods>().relaxed) check::checks(warp.machine).release(warp, view);
  for_lanes(active, [&](int lane) { arrive_one(warp, instr, lane, view); });
  return Step::Next;
}

Step run_tx(Warp& warp, const Instr& instr, LaneMask active) {
  const Mods& mods = instr.mods<Mods>();
  for_lanes(active, [&](int lane) {
    const LaneMask mask = LaneMask{1} << lane;
    Mbarrier* barrier = find_mbarrier(warp, mods.space, lane_value(warp, instr.op(0), lane), mask);
    if (!barrier) return;
    const auto bytes = static_cast<uint32_t>(lane_value(warp, instr.op(1), lane));
    if (mods.action == Action::ExpectTx) {
      mbarrier_expect_tx(*barrier, bytes, warp.site(mask));
    } else {
      mbarrier_complete_tx(*barrier, bytes, {barrier->phase, {}}, warp.site(mask));
    }
  });
  return Step::Next;
}

// The warp has seen that the phase before the current one is complete.
void pass(Warp& warp, Mbarrier& barrier, LaneMask lanes, bool relaxed) {
  auto& checks = check::checks(warp.machine);
  if (!relaxed) checks.acquire(warp, barrier.done);
  barrier.observed = std::max(barrier.observed, barrier.phase);
  const Mbarrier::Waiter waiter{barrier.phase - 1, warp.site(lanes), checks.mark(warp)};
  for (Mbarrier::Waiter& known : barrier.passed) {
    if (known.passed.agent != waiter.passed.agent) continue;
    known = waiter;
    return;
  }
  barrier.passed.push_back(waiter);
}

void stop_waiting(Mbarrier& barrier, const Warp& warp, uint64_t phase) {
  std::erase_if(barrier.waiting, [&](const Mbarrier::Waiter& waiter) {
    return waiter.phase == phase && waiter.site.warp == warp.index && waiter.site.cta == warp.cta.linear;
  });
}

bool is_done(const Mbarrier& barrier, const Mods& mods, uint64_t wanted) {
  return mods.parity ? barrier.parity_done(static_cast<uint32_t>(wanted)) : barrier.phase > phase_of_state(wanted);
}

// Lanes of one object and one wanted phase.
void wait_together(Warp& warp, const Instr& instr, Mbarrier& barrier, uint64_t wanted, LaneMask lanes) {
  const Mods& mods = instr.mods<Mods>();
  const bool resumed = warp.resumed();
  if (resumed) stop_waiting(barrier, warp, warp.resume_tag());
  const bool done = resumed ? barrier.phase > warp.resume_tag() : is_done(barrier, mods, wanted);
  if (!mods.parity && barrier.phase > phase_of_state(wanted) + 1) {
    warp.report(code::kPhaseOverrun, barrier.describe() + ": the state is of an older phase than the one before",
                lanes);
  }
  if (done) {
    warp.set_predicate(instr.op(0), lanes, lanes);
    pass(warp, barrier, lanes, mods.relaxed);
    return;
  }
  // Resumed without a completed phase: the suspension has timed out.
  if (resumed || !mods.suspends) {
    warp.set_predicate(instr.op(0), 0, lanes);
    ++warp.polls;
    return;
  }
  barrier.waiting.push_back({barrier.phase, warp.site(lanes), {}});
  warp.park(barrier, lanes, barrier.phase);
}

Step run_wait(Warp& warp, const Instr& instr, LaneMask active) {
  const Mods& mods = instr.mods<Mods>();
  while (active) {
    const int first = std::countr_zero(active);
    const uint64_t address = lane_value(warp, instr.op(1), first);
    const uint64_t wanted = lane_value(warp, instr.op(2), first);
    LaneMask together = 0;
    for_lanes(active, [&](int lane) {
      if (lane_value(warp, instr.op(1), lane) == address && lane_value(warp, instr.op(2), lane) == wanted) {
        together |= LaneMask{1} << lane;
      }
    });
    active &= ~together;
    Mbarrier* barrier = find_mbarrier(warp, mods.space, address, together);
    if (barrier) {
      wait_together(warp, instr, *barrier, wanted, together);
    } else {
      warp.set_predicate(instr.op(0), together, together);
    }
  }
  return Step::Next;
}

Step run_pending_count(Warp& warp, const Instr& instr, LaneMask active) {
  for_lanes(active, [&](int lane) {
    set_lane_value(warp, instr.op(0), lane, lane_value(warp, instr.op(1), lane) & kMaxCount);
  });
  return Step::Next;
}

// Decoding ---------------------------------------------------------------------------------------------------------

Mods common(Decoder& d, Action action) {
  Mods mods{.space = take_shared_space(d.modifiers()), .action = action};
  mods.relaxed = d.modifiers().take("relaxed");
  d.modifiers().take_one({"acquire", "release"});
  d.modifiers().take_one({"cta", "cluster"});
  if (!d.modifiers().take("b64")) d.unknown();
  return mods;
}

void decode_init(Decoder& d, Instr& out) {
  d.modifiers().take("init");
  const Mods mods = common(d, Action::Init);
  d.address(d.operand(0));
  d.read(d.operand(1), 32);
  d.finish(2);
  out.set_mods(mods);
  out.handler = run_init;
}

void decode_invalidate(Decoder& d, Instr& out) {
  d.modifiers().take("inval");
  const Mods mods = common(d, Action::Invalidate);
  d.address(d.operand(0));
  d.finish(1);
  out.set_mods(mods);
  out.handler = run_invalidate;
}

void decode_arrive(Decoder& d, Instr& out) {
  const bool drops = d.modifiers().take("arrive_drop");
  d.modifiers().take("arrive");
  const bool expects = d.modifiers().take("expect_tx");
  const bool no_complete = d.modifiers().take("noComplete");
  Mods mods = common(d, Action::Arrive);
  mods.drops = drops;
  mods.expects = expects;
  mods.no_complete = no_complete;
  d.write(d.operand(0), 64);
  d.address(d.operand(1));
  if (d.operand_count() > 2) mods.value = static_cast<int8_t>(d.read(d.operand(2), 32));
  d.finish(expects || no_complete ? 3 : 2, 3);
  out.set_mods(mods);
  out.handler = run_arrive;
}

void decode_tx(Decoder& d, Instr& out) {
  const bool expects = d.modifiers().take("expect_tx");
  d.modifiers().take("complete_tx");
  const Mods mods = common(d, expects ? Action::ExpectTx : Action::CompleteTx);
  d.address(d.operand(0));
  d.read(d.operand(1), 32);
  d.finish(2);
  out.set_mods(mods);
  out.handler = run_tx;
}

void decode_wait(Decoder& d, Instr& out) {
  const bool suspends = d.modifiers().take("try_wait");
  d.modifiers().take("test_wait");
  const bool parity = d.modifiers().take("parity");
  Mods mods = common(d, Action::Wait);
  mods.suspends = suspends;
  mods.parity = parity;
  d.write_predicate(d.operand(0));
  d.address(d.operand(1));
  d.read(d.operand(2), parity ? 32 : 64);
  if (d.operand_count() > 3) d.read(d.operand(3), 32);
  d.finish(3, suspends ? 4 : 3);
  out.set_mods(mods);
  out.handler = run_wait;
}

void decode_pending_count(Decoder& d, Instr& out) {
  d.modifiers().take("pending_count");
  if (!d.modifiers().take("b64")) d.unknown();
  d.write(d.operand(0), 32);
  d.read(d.operand(1), 64);
  d.finish(2);
  out.handler = run_pending_count;
}

void decode_mbarrier(Decoder& d, Instr& out) {
  out.op_class = OpClass::Barrier;
  const std::string_view kind = d.modifiers().empty() ? std::string_view() : d.modifiers().left().front();
  if (kind == "init") return decode_init(d, out);
  if (kind == "inval") return decode_invalidate(d, out);
  if (kind == "arrive" || kind == "arrive_drop") return decode_arrive(d, out);
  if (kind == "expect_tx" || kind == "complete_tx") return decode_tx(d, out);
  if (kind == "try_wait" || kind == "test_wait") return decode_wait(d, out);
  if (kind == "pending_count") return decode_pending_count(d, out);
  d.unknown();
}

const Family family({"mbarrier"}, decode_mbarrier);

}  // namespace

Mbarrier* find_mbarrier(Warp& warp, Space space, uint64_t address, LaneMask lanes) {
  const Place place = locate(warp, space, address, lanes);
  if (!place.region) return nullptr;
  Mbarrier* barrier = find_mbarrier(*place.region->cta, static_cast<uint32_t>(place.offset), warp.site(lanes));
  if (barrier) check::checks(warp.machine).mbarrier_touch(warp, *place.region, place.offset, false);
  return barrier;
}

Mbarrier* find_mbarrier(Cta& cta, uint32_t offset, const Site& site) {
  auto& table = cta.ext<MbarrierTable>().at;
  const auto found = table.find(offset);
  if (found != table.end() && found->second->valid) return found->second.get();
  cta.machine->report(code::kInvalidMbarrier, "no mbarrier was initialised at shared+" + hex(offset), site, &cta.shared,
                      offset);
  return nullptr;
}

void publish_mbarriers(Warp& warp) {
  auto* fresh = warp.extensions.find<FreshMbarriers>();
  if (!fresh) return;
  for (Mbarrier* barrier : fresh->objects) barrier->published = true;
  fresh->objects.clear();
}

}  // namespace ptxrun::ops

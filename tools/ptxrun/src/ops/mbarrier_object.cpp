// State of mbarrier objects: phases, counts, findings. The instructions are in mbarrier.cpp.
#include <algorithm>

#include "check/finding.h"
#include "ops/format.h"
#include "ops/mbarrier.h"

namespace ptxrun::ops {

namespace {

constexpr int64_t kMaxTx = (1 << 20) - 1;

struct Progress : Extension<Machine> {
  explicit Progress(Machine& machine) {
    machine.when_stuck.push_back([&machine] { return expire_try_waits(machine); });
  }
  uint64_t at_expiry = ~uint64_t{0};  // Memory::changes
};

void report_overrun(const Mbarrier& barrier, const Mbarrier::Waiter& waiter) {
  barrier.cta.machine->report(
      code::kPhaseOverrun, barrier.describe() + " completes, but nothing orders that after a wait for the phase before",
      barrier.last_arrival, &barrier.cta.shared, barrier.offset, &waiter.site);
}

// A waiter of the phase before the one that ends now, unless it is ordered before this end, could as well look at the
// object later and find the parity unchanged.
void check_overrun(const Mbarrier& barrier) {
  const auto& checks = check::checks(*barrier.cta.machine);
  if (!checks.tracks_order()) return;
  for (const Mbarrier::Waiter& waiter : barrier.passed) {
    if (!checks.knows(barrier.arriving, waiter.passed)) report_overrun(barrier, waiter);
  }
  for (const Mbarrier::Waiter& waiter : barrier.waiting) {
    if (waiter.phase < barrier.phase) report_overrun(barrier, waiter);
  }
}

void end_phase_if_complete(Mbarrier& barrier) {
  if (barrier.pending != 0 || barrier.tx != 0) return;
  check_overrun(barrier);
  auto& checks = check::checks(*barrier.cta.machine);
  checks.announce(barrier.arriving, checks.mbarrier_pipe(barrier.cta, barrier.offset).close());
  barrier.done.join(barrier.arriving);
  barrier.arriving = check::View();
  barrier.passed.clear();
  const uint64_t completed = barrier.phase++;
  barrier.pending = barrier.phase_expected = barrier.expected;
  barrier.wake_tag(completed);
}

void report_tx(Mbarrier& barrier, const std::string& what, const Site& site) {
  barrier.cta.machine->report(code::kTxMismatch, barrier.describe() + ": " + what, site, &barrier.cta.shared,
                              barrier.offset);
}

template <class F>
void for_live_ctas(Machine& machine, F f) {
  for (auto& grid : machine.grids) {
    for (auto& cluster : grid->live) {
      for (auto& cta : cluster->ctas) f(*cta);
    }
  }
}

}  // namespace

std::string Mbarrier::describe() const {
  return "mbarrier at shared+" + hex(offset) + " of CTA " + std::to_string(cta.linear) + ", phase " +
         std::to_string(phase - first) + " (parity " + std::to_string((phase - first) & 1) +
         "; pending: " + std::to_string(pending) + " of " + std::to_string(phase_expected) + " arrivals, " +
         std::to_string(tx) + " bytes)";
}

void mbarrier_arrive(Mbarrier& barrier, uint32_t count, const check::View& view, const Site& site) {
  note_progress(*barrier.cta.machine);
  barrier.last_arrival = site;
  if (count > barrier.pending) {
    barrier.cta.machine->report(code::kOverArrival,
                                barrier.describe() + ": " + std::to_string(count) + " more arrivals than pending ones",
                                site, &barrier.cta.shared, barrier.offset);
    return;
  }
  barrier.arriving.join(view);
  barrier.pending -= count;
  end_phase_if_complete(barrier);
}

void mbarrier_expect_tx(Mbarrier& barrier, int64_t bytes, const Site& site) {
  note_progress(*barrier.cta.machine);
  barrier.tx += bytes;
  if (bytes > kMaxTx || barrier.tx > kMaxTx) report_tx(barrier, "more than 2^20-1 bytes expected", site);
}

void mbarrier_complete_tx(Mbarrier& barrier, int64_t bytes, const Promise& promise, const Site& site) {
  note_progress(*barrier.cta.machine);
  barrier.last_arrival = site;
  if (promise.phase != barrier.phase) {
    report_tx(barrier,
              std::to_string(bytes) + " bytes of an operation that was issued in phase " +
                  std::to_string(promise.phase - barrier.first) + " arrive in a later phase: it did not expect them",
              site);
  }
  barrier.arriving.join(promise.executed);
  barrier.tx -= bytes;
  if (barrier.tx < -kMaxTx) report_tx(barrier, "more than 2^20-1 bytes arrived without being expected", site);
  end_phase_if_complete(barrier);
}

Promise mbarrier_promise(Warp& warp, Mbarrier& barrier, LaneMask lanes) {
  check::checks(warp.machine).mbarrier_touch(warp, barrier.cta.shared, barrier.offset, false);
  if (!barrier.published && check::checks(warp.machine).tracks_order()) {
    warp.report(code::kMissingProxyFence,
                (barrier.describe() +
                 ": initialised without fence.mbarrier_init or fence.proxy.async before an asynchronous operation"),
                lanes);
  }
  return {barrier.phase, check::checks(warp.machine).executed_before(warp)};
}

Promise mbarrier_promise_copy(Warp& warp, Mbarrier& barrier, LaneMask lanes) {
  barrier.copies = barrier.phase + 1;
  return mbarrier_promise(warp, barrier, lanes);
}

MbarrierTable::MbarrierTable(Cta& cta) : cta(cta) { cta.machine->ext<Progress>(); }

void MbarrierTable::on_end(Cta&) {
  for (auto& [offset, barrier] : at) {
    if (!barrier->valid) continue;
    if (barrier->tx != 0) {
      report_tx(*barrier, "the CTA ends with bytes pending", barrier->last_arrival);
    } else if (barrier->copies > barrier->observed && check::checks(*cta.machine).tracks_order()) {
      cta.machine->report(code::kPendingAtExit,
                          barrier->describe() + ": the CTA ends and nobody has waited for the operations of phase " +
                              std::to_string(barrier->copies - 1 - barrier->first),
                          barrier->last_arrival, &cta.shared, offset);
    }
  }
}

bool expire_try_waits(Machine& machine) {
  Progress& progress = machine.ext<Progress>();
  const bool stuck = progress.at_expiry == machine.memory.changes;
  progress.at_expiry = machine.memory.changes;
  bool woken = false;
  for_live_ctas(machine, [&](Cta& cta) {
    const auto* table = cta.extensions.find<MbarrierTable>();
    if (!table) return;
    for (auto& [offset, barrier] : table->at) {
      if (stuck && barrier->pending == 0 && barrier->tx != 0) {
        report_tx(*barrier, "all arrivals are made, the bytes never add up", barrier->last_arrival);
      }
      if (stuck || !barrier->has_waiters()) continue;
      barrier->wake_all();
      woken = true;
    }
  });
  return woken;
}

}  // namespace ptxrun::ops

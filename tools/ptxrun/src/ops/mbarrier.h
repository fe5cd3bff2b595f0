// mbarrier objects of a CTA's shared memory, for all families that signal or wait on them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "check/checks.h"
#include "exec/machine.h"

namespace ptxrun::ops {

struct Mbarrier : WaitObject {
  Mbarrier(Cta& cta, uint32_t offset) : cta(cta), offset(offset) {}

  Cta& cta;
  const uint32_t offset;  // in the CTA's shared memory
  bool valid = false;
  uint32_t expected = 0;  // arrivals of the next phase
  uint32_t phase_expected = 0;
  uint32_t pending = 0;
  int64_t tx = 0;          // bytes expected, less those that have arrived
  uint64_t phase = 0;      // completed phases; a re-initialised object goes on counting so that clocks stay monotonic
  uint64_t first = 0;      // value of `phase` at the initialisation: its parity is 0
  uint64_t copies = 0;     // 1 + the last phase in which an asynchronous operation was told to signal here
  uint64_t observed = 0;   // phases that somebody has waited for
  bool published = false;  // fence.mbarrier_init or fence.proxy.async has followed the initialisation

  check::View arriving;  // handed on by the arrivals of this phase
  check::View done;      // and of those before
  struct Waiter {
    uint64_t phase;  // that it waits for
    Site site;
    check::Epoch passed;  // when it has seen the end of the phase
  };
  std::vector<Waiter> waiting;
  std::vector<Waiter> passed;  // those that have waited for the phase before this one
  Site last_arrival;

  bool parity_done(uint32_t parity) const { return ((phase - first) & 1) != (parity & 1); }
  std::string describe() const override;
};

struct MbarrierTable : Extension<Cta> {
  explicit MbarrierTable(Cta& cta);
  Cta& cta;
  std::unordered_map<uint32_t, std::unique_ptr<Mbarrier>> at;
  void on_end(Cta& cta) override;
};

// Objects that a warp has initialised and not yet made visible to the async proxy.
struct FreshMbarriers : Extension<Warp> {
  explicit FreshMbarriers(Warp&) {}
  std::vector<Mbarrier*> objects;
};
// fence.mbarrier_init, fence.proxy.async.
void publish_mbarriers(Warp& warp);

// The valid object at a shared address (32 bits in shared::cluster form, or generic), or nullptr after a finding.
Mbarrier* find_mbarrier(Warp& warp, Space space, uint64_t address, LaneMask lanes);
// The object at the same offset in another CTA of the cluster.
Mbarrier* find_mbarrier(Cta& cta, uint32_t offset, const Site& site);

// `site`: the instruction that causes it, for findings. `view`: what is handed on to those who wait.
void mbarrier_arrive(Mbarrier& barrier, uint32_t count, const check::View& view, const Site& site);
void mbarrier_expect_tx(Mbarrier& barrier, int64_t bytes, const Site& site);
// An asynchronous operation's signal to come: the phase in which it was issued, and what its arrival shows to be past.
struct Promise {
  uint64_t phase = 0;
  check::View executed;
};
// Bytes of an asynchronous operation arrive.
void mbarrier_complete_tx(Mbarrier& barrier, int64_t bytes, const Promise& promise, const Site& site);

// Before an asynchronous operation that will signal the object is issued: checks that the issuer may rely on the
// initialisation.
Promise mbarrier_promise(Warp& warp, Mbarrier& barrier, LaneMask lanes);
// The same for a copy to shared memory: somebody has to wait for it before the CTA ends.
Promise mbarrier_promise_copy(Warp& warp, Mbarrier& barrier, LaneMask lanes);

// Nothing can run: lanes suspended in try_wait return false. False if that has been tried since the last progress; the
// causes seen in mbarriers are then reported.
bool expire_try_waits(Machine& machine);
// Something has changed that polling lanes may be waiting for.
inline void note_progress(Machine& machine) { machine.memory.note_change(machine.actor); }

}  // namespace ptxrun::ops

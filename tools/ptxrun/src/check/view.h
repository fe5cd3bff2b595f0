// What an agent knows to have happened before, by the way in which it may rely on it.
#pragma once

#include <cstdint>

#include "check/clock.h"

namespace ptxrun::check {

// A proxy fence on the path between two accesses turns generic order into order for the other proxy; tcgen05 fences do
// the same for tensor memory. So each kind of access has its own clock, and a fence copies from one to another.
struct View {
  Clock generic;
  Clock async_shared;  // generic writes to shared memory that the async proxy sees
  Clock async_global;
  Clock tensormap;  // generic writes to tensor maps that the tensormap proxy sees
  Clock tcgen05;    // tensor memory accesses that the next tcgen05 instruction may rely on
  Clock executed;  // what has been executed before, beyond `generic`, without being visible: the issuers of copies that
                   // have completed

  void join(const View& other) {
    generic.join(other.generic);
    async_shared.join(other.async_shared);
    async_global.join(other.async_global);
    tensormap.join(other.tensormap);
    tcgen05.join(other.tcgen05);
    executed.join(other.executed);
  }
  void meet(const View& other) {
    generic.meet(other.generic);
    async_shared.meet(other.async_shared);
    async_global.meet(other.async_global);
    tensormap.meet(other.tensormap);
    tcgen05.meet(other.tcgen05);
    executed.meet(other.executed);
  }
  void raise_floor(uint32_t serial) {
    for (Clock* clock : {&generic, &async_shared, &async_global, &tensormap, &tcgen05, &executed}) {
      clock->raise_floor(serial);
    }
  }
  bool empty() const { return generic.empty(); }
};

enum class FenceSpace : uint8_t { All, Shared, Global };

// Clocks of a warp.
class WarpClock {
 public:
  explicit WarpClock(AgentId id, const View& seen = View()) : self_{id, 1}, seen_(seen) {}

  Epoch self() const { return self_; }
  const View& seen() const { return seen_; }
  bool covers(Epoch epoch) const {
    return epoch.agent == self_.agent ? epoch.clock <= self_.clock : seen_.generic.covers(epoch);
  }
  // Later accesses of this warp are not part of what was handed on so far.
  Epoch step() {
    const Epoch before = self_;
    ++self_.clock;
    return before;
  }

  // Hands on everything up to now, and what others had handed to this warp.
  void release(View& into);
  void acquire(const View& from);
  // What has been executed when an operation issued now has completed.
  void executed_before(View& into) const;
  void raise_floor(uint32_t serial) { seen_.raise_floor(serial); }

  void fence_async(FenceSpace space);
  void fence_tensormap();
  void tcgen05_before_thread_sync() { published_.join(seen_.tcgen05); }
  void tcgen05_after_thread_sync() { seen_.tcgen05.join(arrived_); }
  // The warp has waited for its own operations up to the epoch.
  void waited(Epoch epoch);

 private:
  Epoch self_;
  View seen_;
  Clock arrived_;    // tensor memory accesses handed to this warp, before its tcgen05.fence::after_thread_sync
  Clock published_;  // those that its tcgen05.fence::before_thread_sync has covered
};

}  // namespace ptxrun::check

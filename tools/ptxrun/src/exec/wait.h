// What lanes can wait for. A handler parks lanes on an object; whoever changes the object wakes them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "decode/instruction.h"

namespace ptxrun {

class Warp;

class WaitObject {
 public:
  virtual ~WaitObject() = default;
  WaitObject() = default;
  WaitObject(const WaitObject&) = delete;
  WaitObject& operator=(const WaitObject&) = delete;

  // For the deadlock trace: what is waited for and its state, for example
  // "mbarrier at shared+0x408 of CTA 0, phase 3 (parity 1; pending: 1 of 33 arrivals, 4096 bytes)".
  virtual std::string describe() const = 0;

  bool has_waiters() const { return !waiters_.empty(); }
  struct Waiter {
    Warp* warp;
    LaneMask lanes;
    uint64_t tag;  // as given to Warp::park
  };
  const std::vector<Waiter>& waiters() const { return waiters_; }

  // The lanes execute their instruction again; Warp::resumed() then tells the handler that they had been parked.
  void wake_all();
  // Only those parked with this tag (a phase, a group number).
  void wake_tag(uint64_t tag);

 private:
  friend class Warp;
  std::vector<Waiter> waiters_;
};

}  // namespace ptxrun

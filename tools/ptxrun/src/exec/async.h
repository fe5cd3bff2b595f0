// Asynchronous operations: copies, MMAs, commits. Issued by an instruction, completed by the schedule; their data is
// read and written when they complete.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "exec/agent.h"

namespace ptxrun {

class Machine;
struct Cta;

enum class Schedule : uint8_t {
  Early,   // when issued (or as soon as ready() and its order allow)
  Late,    // one at a time, only when no warp can run
  Random,  // after a seeded number of scheduler steps
};

// Operations with the same non-zero key complete in the order of their issue; key 0 has no order.
using OrderKey = uint64_t;

class AsyncOp {
 public:
  virtual ~AsyncOp() = default;
  // The effect: read, compute, write, signal (mbarrier, group counters), wake.
  virtual void complete(Machine& machine) = 0;
  // False as long as it waits for something other than its order key (an earlier group, a count).
  virtual bool ready() const { return true; }
  // For the deadlock trace and "pending at exit": what it is and what it will signal.
  virtual std::string describe() const = 0;

  Site site;           // the issuing instruction
  Cta* cta = nullptr;  // whose exit would leave it dangling
  OrderKey order = 0;
  uint64_t bytes = 0;     // in flight, for the counters
  uint64_t sequence = 0;  // set at issue
};

class AsyncQueue {
 public:
  AsyncQueue(Machine& machine, Schedule schedule, uint64_t seed);

  // Takes the operation; with Schedule::Early it has completed on return if nothing before it is pending.
  void issue(std::unique_ptr<AsyncOp> op);
  // A fresh key for a pipe, a warp's groups, a thread's bulk groups.
  OrderKey new_order() { return ++last_order_; }

  // Called by the scheduler between warps: completes what the schedule makes due. True if something completed.
  bool step();
  // Called when no warp can run: completes at least one operation, or returns false if none is ready.
  bool force_one();

  std::vector<const AsyncOp*> pending() const;
  // The CTA is gone: completes what it left behind, and drops what never could.
  void complete_all_of(const Cta& cta);

 private:
  struct Entry {
    std::unique_ptr<AsyncOp> op;
    uint64_t due;  // Random: step at which it may complete
  };
  using Item = std::list<Entry>::iterator;
  bool may_complete(const AsyncOp& op) const;
  void complete(Item item);
  bool complete_ready();

  Machine& machine_;
  Schedule schedule_;
  std::mt19937_64 random_;
  std::list<Entry> ops_;                                      // in order of issue
  std::unordered_map<OrderKey, std::deque<uint64_t>> order_;  // sequences pending of a key
  uint64_t last_order_ = 0, last_sequence_ = 0, now_ = 0;
  bool completing_ = false;
};

}  // namespace ptxrun

// A warp: register file, groups of lanes with their own program counters, parking.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "decode/instruction.h"
#include "exec/agent.h"
#include "exec/cta.h"
#include "exec/wait.h"

namespace ptxrun {

class Machine;

// Calls f(lane) for each lane of the mask; the full mask becomes a plain loop.
template <class F>
inline void for_lanes(LaneMask mask, F&& f) {
  if (mask == kAllLanes) {
    for (int lane = 0; lane < kWarpLanes; ++lane) f(lane);
  } else {
    for (; mask; mask &= mask - 1) f(std::countr_zero(mask));
  }
}

// The same where no lane's work depends on another's: may be vectorised although source and result are one register.
template <class F>
inline void map_lanes(LaneMask mask, F&& f) {
  if (mask == kAllLanes) {
#pragma GCC ivdep
    for (int lane = 0; lane < kWarpLanes; ++lane) f(lane);
  } else {
    for (; mask; mask &= mask - 1) f(std::countr_zero(mask));
  }
}

enum class GroupState : uint8_t {
  Ready,
  Parked,   // on a WaitObject
  Await,    // at a .sync instruction, for other lanes of the warp
  Backoff,  // polling: runs again when something has changed or nothing else can run
};

// Lanes that stand at the same instruction with the same call stack.
struct Group {
  uint32_t pc = 0;
  LaneMask lanes = 0;
  GroupState state = GroupState::Ready;
  bool resumed = false;           // woken by a WaitObject, about to execute the instruction again
  uint64_t tag = 0;               // of the park
  WaitObject* waiting = nullptr;  // Parked
  std::vector<uint32_t> calls;    // return addresses
  // Detection of polling loops.
  uint32_t loop_pc = 0;       // last backward branch taken
  uint32_t idle_rounds = 0;   // rounds of it without a write
  uint64_t loop_effects = 0;  // Agent::effects at its last round
  uint64_t loop_polls = 0;    // Warp::polls at its last round
};

class Warp {
 public:
  Warp(Cta& cta, uint32_t index, LaneMask lanes);
  ~Warp();

  Cta& cta;
  Machine& machine;
  const Kernel& kernel;
  const uint32_t index;  // in the CTA
  LaneMask live;         // lanes that have not exited
  Agent agent;

  // Registers -----------------------------------------------------------------------------------------------------
  // The 32 lanes of an operand: T = uint32_t, int32_t, float (one row), uint64_t, int64_t, double (two rows). Types of
  // 8 and 16 bits are read as uint32_t (zero-extended; write them so). 128 bits: in<uint64_t>(op) is the low half,
  // in_high the high half.
  template <class T>
  const T* in(const Operand& op) const {
    const uint32_t* bank = op.kind == Operand::Kind::Constant ? constants_ : registers_;
    return reinterpret_cast<const T*>(bank + size_t{op.row} * kWarpLanes);
  }
  template <class T>
  T* out(const Operand& op) {
    return reinterpret_cast<T*>(registers_ + size_t{op.row} * kWarpLanes);
  }
  const uint64_t* in_high(const Operand& op) const { return in<uint64_t>(op) + kWarpLanes; }
  uint64_t* out_high(const Operand& op) { return out<uint64_t>(op) + kWarpLanes; }

  LaneMask predicate(const Operand& op) const { return op.negated ? ~predicates_[op.row] : predicates_[op.row]; }
  void set_predicate(const Operand& op, LaneMask value, LaneMask active) {
    if (op.kind == Operand::Kind::Predicate) predicates_[op.row] = (predicates_[op.row] & ~active) | (value & active);
  }

  // Where a local address of a lane lies.
  Place local_place(uint64_t address, int lane);

  // Whether the lanes of an operand that the decoder did not track (Decoder::untracked_vector) may be read.
  bool is_ready(const Operand& op, LaneMask lanes) const { return (lanes & ~row_ready_[op.row]) == 0; }

  // For plain copies of untracked operands: the copy of an undefined register is undefined, and only its use is a
  // finding. Compilers write such copies for values that do not matter.
  void copy_readiness(const Instr& instr, const Operand& from, const Operand& to, LaneMask active);

  // Registers that an asynchronous operation uses: until the release, writing them is a finding, and reading them too
  // unless the operation itself only reads them (`readable`). `what`: the operation, a string that lives on. `tag`
  // groups registers for the release.
  void hold(const Operand& op, uint64_t tag, const char* what, bool readable);
  void release(uint64_t first_tag, uint64_t last_tag);  // inclusive; results count as written
  bool is_held(const Operand& op) const { return !held_rows_.empty() && held_rows_[op.row] != 0; }

  // Control -------------------------------------------------------------------------------------------------------
  // The lanes stay at this instruction; they execute it again once the object wakes them. Lanes of `active` not given
  // go on as the returned Step says.
  void park(WaitObject& object, LaneMask lanes, uint64_t tag = 0);
  // Whether the group executes this instruction again after a park, and the park's tag.
  bool resumed() const { return current_->resumed; }
  uint64_t resume_tag() const { return current_->tag; }
  // Step::Jump helpers.
  void branch(LaneMask lanes, uint32_t target);
  // The others execute this instruction again.
  void branch_or_stay(LaneMask lanes, uint32_t target);
  void call(LaneMask lanes, uint32_t target);
  void ret(LaneMask lanes);
  void exit_lanes(LaneMask lanes);
  uint32_t pc() const { return current_->pc; }

  // Where the current instruction stands, for accesses and findings. Valid until the next instruction.
  const Site& site(LaneMask lanes) {
    site_.lanes = lanes;
    return site_;
  }
  const Site& site() const { return site_; }
  void report(const char* code, const std::string& message, LaneMask lanes);

  // Scheduling ----------------------------------------------------------------------------------------------------
  // Runs up to `quantum` instructions, until no group is ready.
  void run(uint32_t quantum);
  bool runnable() const { return ready_groups_ != 0; }
  const std::vector<Group>& groups() const { return groups_; }
  // Groups in back-off become ready; false if there are none.
  bool end_back_off();
  // The group runs on, but only when something has changed or nothing else can run: for polls that found nothing new.
  void back_off() { backs_off_ = true; }
  // Loads, tests and failed atomics by which a loop may wait for somebody else.
  uint64_t polls = 0;

  Extensions<Warp> extensions;
  template <class T>
  T& ext() {
    return extensions.get<T>(*this);
  }

 private:
  friend class WaitObject;
  struct Held {
    uint32_t row;
    bool readable;
    uint64_t tag;
    const char* what;
  };

  void start();
  void fill_start_row(const StartRow& row);
  uint64_t start_value(const StartRow& row, int lane) const;

  Step execute(const Instr& instr, LaneMask active);
  void check_guard(const Instr& instr);
  void check_reads(const Instr& instr, LaneMask active);
  void mark_writes(const Instr& instr, LaneMask active);
  void report_unready(const Instr& instr, LaneMask active);
  void report_held(const Instr& instr, uint32_t row, LaneMask active);

  LaneMask converged(const Instr& instr, LaneMask active) const;
  void await_others(LaneMask lanes);
  Step execute_together(const Instr& instr, LaneMask active);
  void advance(const Instr& instr, Step step);
  void note_backward_branch();
  Group split(LaneMask lanes) const;
  void wake(WaitObject& object, uint64_t tag, bool any_tag);
  void regroup();
  void merge_groups();
  Group* pick();

  uint32_t* registers_ = nullptr;
  const uint32_t* constants_ = nullptr;
  LaneMask* predicates_ = nullptr;
  LaneMask* row_ready_ = nullptr;  // initialised and not held, by row
  LaneMask* predicate_ready_ = nullptr;
  std::vector<uint32_t> storage_;  // empty before the first and after the last instruction
  Region local_;                   // local memory of the lanes, one after the other
  std::vector<Held> held_;
  std::vector<uint8_t> held_rows_;  // number of holds, by row
  std::vector<Group> groups_;
  std::vector<Group> departed_;  // lanes that left the current group during this instruction
  Group* current_ = nullptr;
  uint32_t next_pc_ = 0;  // of the ready group that runs next: the current one stops there to be merged
  uint32_t ready_groups_ = 1;
  bool regroup_ = false;
  bool backs_off_ = false;
  Site site_;
};

}  // namespace ptxrun

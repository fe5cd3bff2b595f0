// Divergence: the groups of a warp, their program counters, parking and reconvergence.
#include <algorithm>
#include <utility>

#include "exec/machine.h"
#include "exec/warp.h"

namespace ptxrun {
namespace {

constexpr uint32_t kNoPc = ~0u;
// Rounds of a loop that only polls before it has to let the others run.
constexpr uint32_t kIdleRounds = 2;

LaneMask lanes_with(const uint32_t* values, uint32_t value, LaneMask lanes) {
  LaneMask result = 0;
  for_lanes(lanes, [&](int lane) { result |= LaneMask{values[lane] == value} << lane; });
  return result;
}

bool may_merge(const Group& group) {
  return (group.state == GroupState::Ready || group.state == GroupState::Await) && !group.resumed;
}

}  // namespace

void Warp::run(uint32_t quantum) {
  if (storage_.empty()) start();
  regroup();
  std::vector<uint64_t>& by_opcode = machine.counters(*cta.grid).by_opcode;
  uint32_t executed = 0;
  Agent* const previous = std::exchange(machine.actor, &agent);
  while (current_ != nullptr && executed < quantum && !machine.halted()) {
    const Instr& instr = kernel.code[current_->pc];
    ++executed;
    LaneMask active = current_->lanes;
    if (instr.guard != Instr::kNoGuard) {
      check_guard(instr);
      const LaneMask guard = predicates_[instr.guard];
      active &= instr.guard_negated ? ~guard : guard;
    }
    if (active == 0) {
      current_->resumed = false;
      ++current_->pc;
    } else if (instr.convergence == Convergence::None) {
      ++by_opcode[instr.opcode_id];
      advance(instr, execute(instr, active));
    } else {
      const LaneMask ready = converged(instr, active);
      if (ready != active) await_others(active & ~ready);
      if (ready != 0) ++by_opcode[instr.opcode_id];
      advance(instr, ready != 0 ? execute_together(instr, ready) : Step::Next);
    }
    if (regroup_ || !departed_.empty() || current_->pc >= next_pc_) regroup();
  }
  machine.actor = previous;
  machine.tick(*this, executed);
  if (live == 0 && groups_.empty()) {
    machine.return_registers(std::move(storage_));
    machine.warp_exited(*this);
  }
}

void Warp::check_guard(const Instr& instr) {
  const LaneMask unready = current_->lanes & ~predicate_ready_[instr.guard];
  if (unready == 0) return;
  site_.instr = &instr;
  report(code::kUninitialisedRegister,
         "the guard predicate is used, but nothing was written to it or to what it was computed from", unready);
  predicate_ready_[instr.guard] |= unready;
  predicates_[instr.guard] &= ~unready;
}

void Warp::advance(const Instr& instr, Step step) {
  switch (step) {
    case Step::Next:
      ++current_->pc;
      break;
    case Step::Jump:
      break;
    case Step::Halt:
      machine.halt("the kernel executed " + instr.source->opcode);
      break;
  }
  current_->resumed = false;
  if (backs_off_) {
    backs_off_ = false;
    current_->state = GroupState::Backoff;
    regroup_ = true;
    machine.warp_backed_off(*this);
  }
  if (current_->lanes == 0) regroup_ = true;
}

// Those of the active lanes that need not wait for others. Lanes with the same mask of members belong together.
LaneMask Warp::converged(const Instr& instr, LaneMask active) const {
  if (instr.convergence == Convergence::Aligned) return (live & ~active) == 0 ? active : 0;
  const uint32_t* members = in<uint32_t>(instr.op(instr.member_operand));
  LaneMask ready = 0;
  for (LaneMask rest = active, together = 0; rest != 0; rest &= ~together) {
    const uint32_t mask = members[std::countr_zero(rest)];
    together = lanes_with(members, mask, rest);
    if ((mask & live & ~together) == 0) ready |= together;
  }
  return ready;
}

void Warp::await_others(LaneMask lanes) {
  Group waiting = split(lanes);
  waiting.state = GroupState::Await;
  departed_.push_back(std::move(waiting));
}

Step Warp::execute_together(const Instr& instr, LaneMask active) {
  if (instr.convergence == Convergence::Aligned) return execute(instr, active);
  const uint32_t* members = in<uint32_t>(instr.op(instr.member_operand));
  LaneMask outside = 0;
  for_lanes(active, [&](int lane) { outside |= ~members[lane] & LaneMask{1} << lane; });
  site_.instr = &instr;
  if (outside != 0) report(code::kNotConverged, "lanes that their own mask of members does not name", outside);
  for (LaneMask rest = active, together = 0; rest != 0; rest &= ~together) {
    together = lanes_with(members, members[std::countr_zero(rest)], rest);
    execute(instr, together);
  }
  return Step::Next;
}

// Lanes leave the current group and stay at its instruction.
Group Warp::split(LaneMask lanes) const {
  Group group;
  group.pc = current_->pc;
  group.lanes = lanes;
  group.calls = current_->calls;
  current_->lanes &= ~lanes;
  return group;
}

void Warp::park(WaitObject& object, LaneMask lanes, uint64_t tag) {
  Group group = split(lanes);
  group.state = GroupState::Parked;
  group.waiting = &object;
  group.tag = tag;
  departed_.push_back(std::move(group));
  object.waiters_.push_back({this, lanes, tag});
}

void Warp::branch(LaneMask lanes, uint32_t target) {
  const bool backward = target <= current_->pc;
  if (lanes == current_->lanes) {
    if (backward) note_backward_branch();
    current_->pc = target;
    return;
  }
  Group taken = split(lanes);
  taken.pc = target;
  departed_.push_back(std::move(taken));
  ++current_->pc;
}

void Warp::branch_or_stay(LaneMask lanes, uint32_t target) {
  const bool all = lanes == current_->lanes;
  branch(lanes, target);
  if (!all) --current_->pc;
}

// A loop that neither writes nor waits, but looks at memory, waits for somebody else.
void Warp::note_backward_branch() {
  Group& group = *current_;
  const bool idle = group.loop_pc == group.pc && group.loop_effects == agent.effects && group.loop_polls != polls;
  group.idle_rounds = idle ? group.idle_rounds + 1 : 0;
  group.loop_pc = group.pc;
  group.loop_effects = agent.effects;
  group.loop_polls = polls;
  if (group.idle_rounds >= kIdleRounds) back_off();
}

void Warp::call(LaneMask lanes, uint32_t target) {
  if (lanes != current_->lanes) {
    Group caller = split(lanes);
    caller.calls.push_back(caller.pc + 1);
    caller.pc = target;
    departed_.push_back(std::move(caller));
    ++current_->pc;
    return;
  }
  current_->calls.push_back(current_->pc + 1);
  current_->pc = target;
}

void Warp::ret(LaneMask lanes) {
  if (current_->calls.empty()) return exit_lanes(lanes);
  const uint32_t target = current_->calls.back();
  if (lanes == current_->lanes) {
    current_->calls.pop_back();
    current_->pc = target;
    return;
  }
  Group returning = split(lanes);
  returning.calls.pop_back();
  returning.pc = target;
  departed_.push_back(std::move(returning));
  ++current_->pc;
}

void Warp::exit_lanes(LaneMask lanes) {
  live &= ~lanes;
  cta.live_threads -= static_cast<uint32_t>(std::popcount(lanes));
  current_->lanes &= ~lanes;
  ++current_->pc;
  regroup_ = true;
}

bool Warp::end_back_off() {
  bool any = false;
  for (Group& group : groups_) {
    if (group.state != GroupState::Backoff) continue;
    group.state = GroupState::Ready;
    any = true;
  }
  if (any) {
    ++ready_groups_;
    regroup_ = true;
    machine.warp_ready(*this);
  }
  return any;
}

void Warp::wake(WaitObject& object, uint64_t tag, bool any_tag) {
  for (auto* groups : {&groups_, &departed_}) {
    for (Group& group : *groups) {
      if (group.state != GroupState::Parked || group.waiting != &object || (!any_tag && group.tag != tag)) continue;
      group.state = GroupState::Ready;
      group.waiting = nullptr;
      group.resumed = true;
    }
  }
  ++ready_groups_;
  regroup_ = true;
  machine.warp_ready(*this);
}

// Brings departed lanes in, joins groups that have met and chooses the one to run.
void Warp::regroup() {
  for (Group& group : departed_) groups_.push_back(std::move(group));
  departed_.clear();
  std::erase_if(groups_, [](const Group& group) { return group.lanes == 0; });
  // Lanes that have exited are no longer waited for.
  for (Group& group : groups_) {
    if (group.state != GroupState::Await) continue;
    if (converged(kernel.code[group.pc], group.lanes) != 0) group.state = GroupState::Ready;
  }
  if (groups_.size() > 1) merge_groups();
  regroup_ = false;
  current_ = pick();
}

void Warp::merge_groups() {
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (!may_merge(groups_[i])) continue;
    for (size_t j = i + 1; j < groups_.size();) {
      if (!may_merge(groups_[j]) || groups_[j].pc != groups_[i].pc || groups_[j].calls != groups_[i].calls) {
        ++j;
        continue;
      }
      groups_[i].lanes |= groups_[j].lanes;
      groups_[i].state = GroupState::Ready;
      groups_.erase(groups_.begin() + static_cast<ptrdiff_t>(j));
    }
  }
}

Group* Warp::pick() {
  Group* best = nullptr;
  next_pc_ = kNoPc;
  ready_groups_ = 0;
  for (Group& group : groups_) {
    if (group.state != GroupState::Ready) continue;
    ++ready_groups_;
    if (best == nullptr || group.pc < best->pc) {
      if (best != nullptr) next_pc_ = std::min(next_pc_, best->pc);
      best = &group;
    } else {
      next_pc_ = std::min(next_pc_, group.pc);
    }
  }
  return best;
}

}  // namespace ptxrun

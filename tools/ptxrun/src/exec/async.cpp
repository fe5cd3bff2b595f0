#include "exec/async.h"

#include <algorithm>
#include <utility>

#include "exec/machine.h"

namespace ptxrun {
namespace {

constexpr uint64_t kMaxDelay = 64;  // scheduler steps, Schedule::Random

}  // namespace

AsyncQueue::AsyncQueue(Machine& machine, Schedule schedule, uint64_t seed)
    : machine_(machine), schedule_(schedule), random_(seed) {}

void AsyncQueue::issue(std::unique_ptr<AsyncOp> op) {
  op->sequence = ++last_sequence_;
  if (op->order != 0) order_[op->order].push_back(op->sequence);
  if (machine_.actor != nullptr) ++machine_.actor->effects;
  if (op->cta != nullptr && op->bytes != 0) machine_.note_bytes_in_flight(*op->cta, static_cast<int64_t>(op->bytes));
  ops_.push_back({std::move(op), schedule_ == Schedule::Random ? now_ + random_() % kMaxDelay : 0});
  if (schedule_ == Schedule::Early) complete_ready();
}

bool AsyncQueue::may_complete(const AsyncOp& op) const {
  if (op.order != 0 && order_.at(op.order).front() != op.sequence) return false;
  return op.ready();
}

void AsyncQueue::complete(Item item) {
  const std::unique_ptr<AsyncOp> op = std::move(item->op);
  ops_.erase(item);
  if (op->order != 0) {
    const auto pipe = order_.find(op->order);
    pipe->second.pop_front();
    if (pipe->second.empty()) order_.erase(pipe);
  }
  if (op->cta != nullptr && op->bytes != 0) machine_.note_bytes_in_flight(*op->cta, -static_cast<int64_t>(op->bytes));
  Agent* const issuer = std::exchange(machine_.actor, nullptr);
  op->complete(machine_);
  ++machine_.memory.changes;
  machine_.actor = issuer;
}

// Everything that is due and allowed; again as long as one completion makes way for another. Completing an operation
// may issue others: they wait for the loop that is running.
bool AsyncQueue::complete_ready() {
  if (completing_) return false;
  completing_ = true;
  bool any = false, again = true;
  while (again) {
    again = false;
    for (Item item = ops_.begin(); item != ops_.end();) {
      const Item next = std::next(item);
      if (item->due <= now_ && may_complete(*item->op)) {
        complete(item);
        any = again = true;
      }
      item = next;
    }
  }
  completing_ = false;
  return any;
}

bool AsyncQueue::step() {
  ++now_;
  if (ops_.empty() || schedule_ == Schedule::Late) return false;
  return complete_ready();
}

bool AsyncQueue::force_one() {
  for (Item item = ops_.begin(); item != ops_.end(); ++item) {
    if (!may_complete(*item->op)) continue;
    complete(item);
    return true;
  }
  return false;
}

void AsyncQueue::complete_all_of(const Cta& cta) {
  bool again = true;
  while (again) {
    again = false;
    for (Item item = ops_.begin(); item != ops_.end() && !again; ++item) {
      if (item->op->cta != &cta || !may_complete(*item->op)) continue;
      complete(item);
      again = true;
    }
  }
  for (Item item = ops_.begin(); item != ops_.end();) {
    if (item->op->cta == &cta) {
      if (item->op->order != 0) std::erase(order_.at(item->op->order), item->op->sequence);
      item = ops_.erase(item);
    } else {
      ++item;
    }
  }
}

std::vector<const AsyncOp*> AsyncQueue::pending() const {
  std::vector<const AsyncOp*> ops;
  for (const Entry& entry : ops_) ops.push_back(entry.op.get());
  return ops;
}

}  // namespace ptxrun

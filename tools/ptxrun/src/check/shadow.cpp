#include "check/shadow.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace ptxrun::check {

Shadow::Shadow(std::shared_ptr<CellPool> pool, uint64_t bytes, bool initialised)
    : pool_(std::move(pool)),
      fresh_(initialised ? kFreshInitialised : kFreshUninitialised),
      cells_((bytes + kCellBytes - 1) / kCellBytes),
      ids_(static_cast<CellId*>(std::calloc(cells_ ? cells_ : 1, sizeof(CellId)))) {
  if (!ids_) throw std::bad_alloc();
}

Shadow::~Shadow() {
  for (uint64_t cell = 0; cell < cells_; ++cell) {
    if (ids_[cell]) pool_->release(ids_[cell]);
  }
}

void Shadow::put(uint64_t cell, CellId id) {
  const CellId old = ids_[cell];
  pool_->retain(id);
  ids_[cell] = id;
  if (old) pool_->release(old);
}

Shadow::Step Shadow::evaluate(uint64_t cell, ByteMask mask, const Touch& touch, Effect effect,
                              std::vector<RangeConflict>& conflicts) {
  scratch_.clear();
  Step step;
  step.from = get(cell);
  step.to = pool_->next(step.from, touch, effect, mask, scratch_);
  for (Conflict& conflict : scratch_) {
    conflicts.push_back({cell * kCellBytes + std::countr_zero(conflict.mask), std::move(conflict)});
  }
  return step;
}

void Shadow::touch_part(uint64_t cell, ByteMask mask, const Touch& touch, Effect effect,
                        std::vector<RangeConflict>& conflicts) {
  const Step step = evaluate(cell, mask, touch, effect, conflicts);
  if (step.to != step.from) put(cell, step.to);
}

void Shadow::touch(uint64_t offset, uint64_t bytes, const Touch& touch, Effect effect,
                   std::vector<RangeConflict>& conflicts) {
  const uint64_t end = offset + bytes;
  uint64_t cell = offset / kCellBytes;
  const uint64_t last = (end - 1) / kCellBytes;
  const ByteMask first_mask = static_cast<ByteMask>(kAllBytes << offset % kCellBytes);
  const ByteMask last_mask = static_cast<ByteMask>(kAllBytes >> (kCellBytes - 1 - (end - 1) % kCellBytes));
  if (cell == last) {
    touch_part(cell, first_mask & last_mask, touch, effect, conflicts);
    return;
  }
  if (first_mask != kAllBytes) touch_part(cell++, first_mask, touch, effect, conflicts);
  const uint64_t whole_end = last_mask == kAllBytes ? last + 1 : last;
  Step step;
  while (cell < whole_end) {
    if (step.from != get(cell)) {
      step = evaluate(cell, kAllBytes, touch, effect, conflicts);
      // What `step` speaks of must not be given to another cell while it is used.
      for (CellId id : {step.from, step.to}) {
        pool_->retain(id);
        held_.push_back(id);
      }
    }
    const CellId stored = ids_[cell];
    const uint64_t start = cell;
    if (step.to == step.from) {
      while (cell < whole_end && ids_[cell] == stored) ++cell;
      continue;
    }
    for (; cell < whole_end && ids_[cell] == stored; ++cell) ids_[cell] = step.to;
    pool_->retain(step.to, static_cast<uint32_t>(cell - start));
    if (stored) pool_->release(stored, static_cast<uint32_t>(cell - start));
  }
  for (CellId id : held_) pool_->release(id);
  held_.clear();
  if (cell == last) touch_part(cell, last_mask, touch, effect, conflicts);
}

bool Shadow::initialised(uint64_t offset, uint64_t bytes) const {
  for (const uint64_t end = offset + bytes; offset < end;) {
    const uint64_t cell = offset / kCellBytes;
    const uint64_t stop = std::min(end, (cell + 1) * kCellBytes);
    const auto from = static_cast<unsigned>(offset % kCellBytes);
    const ByteMask mask = static_cast<ByteMask>(((1u << (stop - offset)) - 1) << from);
    if (mask & ~(*pool_)[get(cell)].initialised) return false;
    offset = stop;
  }
  return true;
}

void Shadow::reset(uint64_t offset, uint64_t bytes, bool initialised) {
  const CellId id = initialised ? kFreshInitialised : kFreshUninitialised;
  const uint64_t end = (offset + bytes + kCellBytes - 1) / kCellBytes;
  for (uint64_t cell = offset / kCellBytes; cell < end; ++cell) put(cell, id);
}

}  // namespace ptxrun::check

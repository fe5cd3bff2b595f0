#include "check/cell_pool.h"

namespace ptxrun::check {

namespace {

bool equal(const std::vector<Entry>& a, const std::vector<Entry>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].is_many() || b[i].is_many()) return false;
    if (!(a[i].epoch == b[i].epoch) || a[i].instr != b[i].instr || a[i].mask != b[i].mask || a[i].path != b[i].path ||
        a[i].strong != b[i].strong || a[i].object != b[i].object || a[i].layout != b[i].layout) {
      return false;
    }
  }
  return true;
}

}  // namespace

CellPool::CellPool() : cells_(3), references_(3, 1) { cells_[kFreshInitialised].initialised = kAllBytes; }

bool CellPool::Transition::matches(const Transition& other) const {
  return from == other.from && epoch == other.epoch && issuer == other.issuer && instr == other.instr &&
         mask == other.mask && kind == other.kind && layout == other.layout;
}

uint16_t CellPool::kind_of(const Touch& touch, Effect effect) {
  return static_cast<uint16_t>(effect) | static_cast<uint16_t>(touch.path) << 2 | touch.strong << 4 |
         touch.object << 5 | touch.in_order << 6 | touch.tracked << 7 | touch.lenient << 8;
}

void CellPool::recycle(CellId id) {
  cells_[id].writes.clear();
  cells_[id].reads.clear();
  free_.push_back(id);
}

CellId CellPool::allocate() {
  if (free_.empty()) {
    cells_.emplace_back();
    references_.push_back(0);
    return static_cast<CellId>(cells_.size() - 1);
  }
  const CellId id = free_.back();
  free_.pop_back();
  return id;
}

CellId CellPool::evaluate_new(CellId id, const Touch& touch, Effect effect, ByteMask mask,
                              std::vector<Conflict>& conflicts) {
  const Cell& before = cells_[id];
  evaluate(before, touch, effect, mask, scratch_, conflicts);
  if (scratch_.initialised == before.initialised && equal(scratch_.writes, before.writes) &&
      equal(scratch_.reads, before.reads)) {
    return id;
  }
  if (scratch_.writes.empty() && scratch_.reads.empty()) {
    if (scratch_.initialised == kAllBytes) return kFreshInitialised;
    if (scratch_.initialised == 0) return kFreshUninitialised;
  }
  const CellId made = allocate();
  Cell& cell = cells_[made];
  cell.initialised = scratch_.initialised;
  std::swap(cell.writes, scratch_.writes);
  std::swap(cell.reads, scratch_.reads);
  return made;
}

CellId CellPool::next(CellId id, const Touch& touch, Effect effect, ByteMask mask, std::vector<Conflict>& conflicts) {
  Transition wanted{id, 0, touch.epoch, touch.issuer.agent, touch.instr, mask, kind_of(touch, effect), touch.layout};
  const uint64_t hash = (uint64_t{id} * 0x9E3779B97F4A7C15u) ^ (uint64_t{touch.epoch.clock} * 0xC2B2AE3D27D4EB4Fu) ^
                        (uint64_t{touch.epoch.agent} << 17) ^ (uint64_t{mask} * 0x165667B19E3779F9u) ^
                        reinterpret_cast<uintptr_t>(touch.instr) ^ (uint64_t{wanted.kind} << 40);
  Transition& slot = memo_[(hash >> 20 ^ hash >> 44) % kMemo];
  if (slot.from && slot.matches(wanted)) return slot.to;
  const size_t conflicts_before = conflicts.size();
  wanted.to = evaluate_new(id, touch, effect, mask, conflicts);
  if (conflicts.size() != conflicts_before) return wanted.to;
  // The table holds references, so that a number in it is not given to another cell.
  retain(wanted.from);
  retain(wanted.to);
  if (slot.from) {
    release(slot.from);
    release(slot.to);
  }
  slot = wanted;
  return wanted.to;
}

}  // namespace ptxrun::check

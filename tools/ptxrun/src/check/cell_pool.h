// Distinct cells, counted by reference, and a table of the transitions between them that were evaluated last.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "check/cell.h"

namespace ptxrun::check {

using CellId = uint32_t;
// Never written or read by an agent; contents given by the host, or none.
inline constexpr CellId kFreshInitialised = 1;
inline constexpr CellId kFreshUninitialised = 2;

class CellPool {
 public:
  CellPool();

  const Cell& operator[](CellId id) const { return cells_[id]; }
  void retain(CellId id, uint32_t count = 1) { references_[id] += count; }
  void release(CellId id, uint32_t count = 1) {
    references_[id] -= count;
    if (references_[id] == 0) recycle(id);
  }

  // The cell after the access. The caller moves its references. Conflicts are appended; a transition with conflicts is
  // evaluated anew each time.
  CellId next(CellId id, const Touch& touch, Effect effect, ByteMask mask, std::vector<Conflict>& conflicts);

  size_t live() const { return cells_.size() - free_.size(); }

 private:
  struct Transition {
    CellId from = 0, to = 0;
    Epoch epoch;
    AgentId issuer = 0;
    const Instr* instr = nullptr;
    ByteMask mask = 0;
    uint16_t kind = 0;
    Layout layout = Layout::Unknown;
    bool matches(const Transition& other) const;
  };
  static uint16_t kind_of(const Touch& touch, Effect effect);
  CellId allocate();
  void recycle(CellId id);
  CellId evaluate_new(CellId id, const Touch& touch, Effect effect, ByteMask mask, std::vector<Conflict>& conflicts);

  std::deque<Cell> cells_;
  std::vector<uint32_t> references_;
  std::vector<CellId> free_;
  static constexpr size_t kMemo = 1 << 12;
  std::array<Transition, kMemo> memo_;
  Cell scratch_;
};

}  // namespace ptxrun::check

// The cells of one allocation.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "check/cell_pool.h"

namespace ptxrun::check {

struct RangeConflict {
  uint64_t offset;  // of the first byte concerned
  Conflict conflict;
};

class Shadow {
 public:
  Shadow(std::shared_ptr<CellPool> pool, uint64_t bytes, bool initialised);
  ~Shadow();
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;

  // The caller has checked the bounds. Conflicts of equal cells come once.
  void touch(uint64_t offset, uint64_t bytes, const Touch& touch, Effect effect, std::vector<RangeConflict>& conflicts);
  // Whether all of the bytes were written.
  bool initialised(uint64_t offset, uint64_t bytes) const;
  // Calls f(offset, cell) for the cells that were touched; runs of equal ones come once.
  template <class F>
  void for_each_cell(F f) const {
    CellId last = 0;
    for (uint64_t cell = 0; cell < cells_; ++cell) {
      if (ids_[cell] && ids_[cell] != last) f(cell * kCellBytes, (*pool_)[ids_[cell]]);
      last = ids_[cell];
    }
  }
  // Forgets who did what in whole cells.
  void reset(uint64_t offset, uint64_t bytes, bool initialised);

 private:
  struct Step {
    CellId from = 0, to = 0;
  };
  Step evaluate(uint64_t cell, ByteMask mask, const Touch& touch, Effect effect, std::vector<RangeConflict>& conflicts);
  void touch_part(uint64_t cell, ByteMask mask, const Touch& touch, Effect effect,
                  std::vector<RangeConflict>& conflicts);
  CellId get(uint64_t cell) const { return ids_[cell] ? ids_[cell] : fresh_; }
  void put(uint64_t cell, CellId id);

  struct Free {
    void operator()(CellId* ids) const { std::free(ids); }
  };
  const std::shared_ptr<CellPool> pool_;
  const CellId fresh_;
  const uint64_t cells_;
  std::unique_ptr<CellId[], Free> ids_;  // 0: fresh. Zero pages of large allocations are never touched.
  std::vector<Conflict> scratch_;
  std::vector<CellId> held_;
};

}  // namespace ptxrun::check

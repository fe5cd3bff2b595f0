// Operands of wgmma and tcgen05 in shared memory: what an instruction will read, told at issue, and the bytes, fetched
// when it completes.
#pragma once

#include <cstdint>

#include "check/checks.h"
#include "exec/machine.h"
#include "model/smem_layout.h"

namespace ptxrun::ops {

class SmemOperand {
 public:
  SmemOperand() = default;
  // Rows [first_row, first_row + rows) along M or N, `k` elements each.
  SmemOperand(const model::SmemMatrix& matrix, model::Major major, int first_row, int rows, int k, int element_bits);

  int rows() const { return rows_; }
  // Leaves the issue with the operand's layout.
  void announce(check::Issue& issue, Region& shared) const;
  // Elements of 8 or 16 bits as [rows, k]; zeros where an address lies out of bounds (a finding).
  void fetch(Machine& machine, Region& shared, const Site& site, uint16_t* elements) const;
  // K-major rows as packed bytes, [rows, k * element_bits / 8].
  void fetch_packed(Machine& machine, Region& shared, const Site& site, uint8_t* bytes) const;

 private:
  static constexpr int kUnitBytes = 16;
  int unit_elements() const { return 8 * kUnitBytes / element_bits_; }
  // Calls f(address, row, k) for each 16-byte unit, with its first element.
  template <class F>
  void for_units(F&& f) const;

  model::SmemMatrix matrix_;
  model::Major major_ = model::Major::kK;
  int first_row_ = 0, rows_ = 0, k_ = 0, element_bits_ = 8;
};

// Findings about a descriptor, all with code::kBadDescriptor.
void report_problems(Warp& warp, const model::Problems& problems, LaneMask lanes);

}  // namespace ptxrun::ops

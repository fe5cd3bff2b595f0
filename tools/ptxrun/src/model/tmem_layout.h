// Where matrices, scales and registers lie in tensor memory.
//
// Tensor memory of a CTA: 128 lanes of 512 columns of 32 bits; address = lane << 16 | column.
#pragma once

#include <cstdint>
#include <vector>

#include "model/problem.h"

namespace ptxrun::model {

inline constexpr int kTmemPartition = 32;  // lanes that one warp of a warpgroup reaches

struct TmemCell {
  int lane;
  int column;

  friend bool operator==(const TmemCell&, const TmemCell&) = default;
};

// Shapes of tcgen05.ld and tcgen05.st.
enum class TmemShape { k32x32b, k16x64b, k16x128b, k16x256b, k16x32bx2 };

// Registers a thread of .x1 .. .x128.
int registers_per_thread(TmemShape shape, int repeat);
bool is_legal_repeat(TmemShape shape, int repeat);

// Cell of register `index` of `thread`, relative to the instruction's address. `half_split`: the immediate of 16x32bx2.
// With .pack::16b or .unpack::16b a register holds the low halves of columns 2c and 2c + 1, where this gives c.
TmemCell register_cell(TmemShape shape, int thread, int index, int half_split = 0);

// Shapes of tcgen05.cp. Each row of the source goes to one lane of `lanes`, and again `copies - 1` times.
enum class CopyShape { k128x256b, k4x256b, k128x128b, k64x128bWarpx2_02_13, k64x128bWarpx2_01_23, k32x128bWarpx4 };

struct CopyExtent {
  int rows;
  int row_bytes;  // 16 or 32
  int copies;
};
CopyExtent copy_extent(CopyShape shape);
// Lane of `row`, relative to the instruction's address, in `copy` of its copies.
int copy_lane(CopyShape shape, int row, int copy);

// Accumulators of an M x N step. `m` counts the rows of the whole step; `row` those of this CTA (m / cta_group of
// them).
struct AccumulatorLayout {
  int m;
  int n;
  int cta_group;

  int rows() const { return m / cta_group; }
  // Columns that the step occupies from its base column.
  int columns() const;
  TmemCell cell(int row, int column) const;
  // N columns whose scales a lane partition holds: the halves of N lie in lanes 0-63 and 64-127, or all are everywhere.
  bool splits_columns() const { return cta_group == 2 && m == 128; }
};

// Scales of row `row` (of M or N), relative to the base address: the 32-bit cell in lane partition `partition`.
// Byte `id + group` of the cell is the scale of that group.
TmemCell scale_cell(int row, int partition);

}  // namespace ptxrun::model

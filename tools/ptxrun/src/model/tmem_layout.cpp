#include "model/tmem_layout.h"

#include <bit>

namespace ptxrun::model {
namespace {

// Registers a thread of the shape's .x1.
int unit_registers(TmemShape shape) {
  switch (shape) {
    case TmemShape::k32x32b:
    case TmemShape::k16x64b:
    case TmemShape::k16x32bx2:
      return 1;
    case TmemShape::k16x128b:
      return 2;
    case TmemShape::k16x256b:
      return 4;
  }
  return 0;
}

}  // namespace

int registers_per_thread(TmemShape shape, int repeat) { return unit_registers(shape) * repeat; }

bool is_legal_repeat(TmemShape shape, int repeat) {
  return repeat >= 1 && std::has_single_bit(static_cast<unsigned>(repeat)) &&
         registers_per_thread(shape, repeat) <= 128;
}

TmemCell register_cell(TmemShape shape, int thread, int index, int half_split) {
  const int quad = thread / 4, in_quad = thread % 4;
  switch (shape) {
    case TmemShape::k32x32b:
      return {thread, index};
    case TmemShape::k16x64b:
      return {quad + 8 * (thread % 2), thread / 2 % 2 + 2 * index};
    case TmemShape::k16x128b:
      return {quad + 8 * (index % 2), in_quad + 4 * (index / 2)};
    case TmemShape::k16x256b:
      return {quad + 8 * (index / 2 % 2), 2 * in_quad + index % 2 + 8 * (index / 4)};
    case TmemShape::k16x32bx2:
      return {thread % 16, index + half_split * (thread / 16)};
  }
  return {0, 0};
}

CopyExtent copy_extent(CopyShape shape) {
  switch (shape) {
    case CopyShape::k128x256b:
      return {128, 32, 1};
    case CopyShape::k4x256b:
      return {4, 32, 1};
    case CopyShape::k128x128b:
      return {128, 16, 1};
    case CopyShape::k64x128bWarpx2_02_13:
    case CopyShape::k64x128bWarpx2_01_23:
      return {64, 16, 2};
    case CopyShape::k32x128bWarpx4:
      return {32, 16, 4};
  }
  return {0, 0, 0};
}

int copy_lane(CopyShape shape, int row, int copy) {
  switch (shape) {
    case CopyShape::k4x256b:
      return row * kTmemPartition;
    case CopyShape::k64x128bWarpx2_02_13:
      return row + 2 * kTmemPartition * copy;
    case CopyShape::k64x128bWarpx2_01_23:
      return row % kTmemPartition + 2 * kTmemPartition * (row / kTmemPartition) + kTmemPartition * copy;
    default:
      return row + kTmemPartition * copy;
  }
}

int AccumulatorLayout::columns() const { return splits_columns() ? n / 2 : n; }

TmemCell AccumulatorLayout::cell(int row, int column) const {
  if (splits_columns()) return {row + 64 * (column / (n / 2)), column % (n / 2)};
  if (m == 64) return {row % 16 + kTmemPartition * (row / 16), column};
  return {row, column};
}

TmemCell scale_cell(int row, int partition) {
  return {row % kTmemPartition + kTmemPartition * partition, row / kTmemPartition};
}

}  // namespace ptxrun::model

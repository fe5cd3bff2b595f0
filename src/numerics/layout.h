// Where a value of the checkpoint lies in the prepared weights: row permutations and the 128x4 scale interleave.
#pragma once

#include <cstdint>

#include "numerics/fp32.h"
#include "plan/problem.h"

namespace cake_moe {

// FC1: stored rows come in blocks of 32 for 16 features: up 0,2,..14 | gate 0,2,..14 | up 1,3,..15 | gate 1,3,..15.
inline constexpr int kFc1Block = 32;
CAKE_HD inline int fc1_row_feature(int stored_row) {
  const int block = stored_row / 32, j = stored_row % 8, quarter = stored_row % 32 / 8;
  return 16 * block + 2 * j + quarter / 2;
}
CAKE_HD inline bool fc1_row_is_gate(int stored_row) { return stored_row % 32 / 8 % 2 == 1; }

// FC2: canonical output column of a stored row.
CAKE_HD inline int fc2_row_column(int stored_row) {
  return 32 * (stored_row / 32) + 4 * (stored_row % 8) + stored_row % 32 / 8;
}

// Byte of the scale of stored row r and K group c in an expert's [rows, groups] scales, interleaved 128x4.
CAKE_HD inline int64_t scale_offset(int r, int c, int groups) {
  return static_cast<int64_t>(r / 128) * (groups / 4) * 512 + c / 4 * 512 + r % 32 * 16 + r % 128 / 32 * 4 + c % 4;
}

}  // namespace cake_moe

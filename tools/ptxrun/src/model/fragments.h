// Which element of a matrix each register of a thread holds, for mma.sync, ldmatrix and wgmma.
#pragma once

namespace ptxrun::model {

struct MatrixIndex {
  int row;
  int column;

  friend bool operator==(const MatrixIndex&, const MatrixIndex&) = default;
};

// A of 16 rows: first element of 32-bit register `index`, which holds `per_register` neighbours along K
// (2 of 16 bits, 4 of 8 bits). Registers 0, 1: rows 0-7 and 8-15 of the first half of K; 2, 3: of the second.
constexpr MatrixIndex a_fragment(int thread, int index, int per_register) {
  return {thread / 4 + 8 * (index % 2), thread % 4 * per_register + 4 * per_register * (index / 2)};
}

// B of 8 columns: row is along K, column along N.
constexpr MatrixIndex b_fragment(int thread, int index, int per_register) {
  return {thread % 4 * per_register + 4 * per_register * index, thread / 4};
}

// Accumulator `index` of a warp: 16 rows, eight columns for each four accumulators.
constexpr MatrixIndex accumulator_fragment(int thread, int index) {
  return {thread / 4 + 8 * (index / 2 % 2), 2 * (thread % 4) + index % 2 + 8 * (index / 4)};
}

}  // namespace ptxrun::model

// Which bytes a tensor copy moves: the box of a tensor map at given coordinates, as runs between global and shared
// memory.
#pragma once

#include <cstdint>
#include <vector>

#include "model/problem.h"
#include "shim/tensor_map_handle.h"

namespace ptxrun::model {

struct BoxRun {
  uint64_t global = 0;  // address; meaningless where the run lies outside of the tensor
  uint32_t shared = 0;  // address of its first byte, swizzled
  uint32_t bytes = 0;
  bool inside = false;  // outside: a load fills, a store leaves out
};

// Bytes that the box occupies in shared memory, and by which a load's barrier is advanced.
uint32_t box_bytes(const TensorMapHandle& map);

// A box whose modes are not modelled (interleave, packed-to-16 types, other swizzle atoms) or whose destination is not
// aligned; `shared` is where the box starts.
Problems check_box_copy(const TensorMapHandle& map, uint32_t shared);

// Runs in the order of shared memory without a swizzle. `coordinates[rank]` in elements, dimension 0 first.
void box_runs(const TensorMapHandle& map, const int32_t* coordinates, uint32_t shared, std::vector<BoxRun>& runs);

// tile::gather4 and scatter4: four rows of a two-dimensional tensor, {column, row0, row1, row2, row3}.
void gather4_runs(const TensorMapHandle& map, const int32_t* coordinates, uint32_t shared, std::vector<BoxRun>& runs);

// 16 bytes of what a load writes outside of the tensor: zeros, or the NaN of the element type.
void fill_pattern(const TensorMapHandle& map, uint8_t pattern[16]);

}  // namespace ptxrun::model

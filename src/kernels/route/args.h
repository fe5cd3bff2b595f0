#pragma once

#include <vector_types.h>

#include <cstdint>

namespace cake_moe::route {

struct Args {
  const int32_t* ids;       // [M, 16]
  int num_tokens;           // M
  int tile_tokens;          // most rows of a token tile, a multiple of 8
  int32_t* expert_offsets;  // [E + 1]
  int32_t* row_route;       // [16 * M]
  int32_t* route_row;       // [16 * M]
  int4* tiles;              // expert, first row, rows, 0 of each token tile
  int32_t* tile_count;      // [1]
  uint32_t* work_counter;   // [1], set to 0
  int32_t* progress;        // [3] where FC2 finalises, too, set to 0; else nullptr
};

}  // namespace cake_moe::route

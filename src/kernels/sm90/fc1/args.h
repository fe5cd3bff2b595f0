#pragma once

#include <vector_types.h>

#include <cstdint>

namespace cake_moe::sm90::fc1 {

// Token tiles and rows as in plan/workspace.h.
struct Args {
  const uint8_t* scales;      // e4m3 [E, 768 * 224], 128x4 interleave
  const uint8_t* x_half;      // fp16 [M, 3584], K order of dequant.cuh
  const int32_t* row_route;   // [R]
  int4* tiles;                // [tile_count], expert, first row, rows, parts of FC1 that are finished
  const int32_t* tile_count;  // [1]
  const float* alpha;         // dX*dW13 [E]
  const float* beta;          // [E]
  const float* linear_beta;   // [E]
  const float* encode;        // qA [E]
  uint8_t* hq;                // e2m1 [R, 192]
  uint8_t* hs;                // e4m3 [R, 24]
};

}  // namespace cake_moe::sm90::fc1

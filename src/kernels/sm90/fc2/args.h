#pragma once

#include <cstdint>

#include "kernels/finalize/args.h"

namespace cake_moe::sm90::fc2 {

// CTAs of FC2 that have started, wait for the others, and have stored all of y; the route stage sets them to zero.
struct Progress {
  int32_t started, joined, finished;
};

// Token tiles and rows as in plan/workspace.h.
struct Args {
  const uint8_t* weights;     // e2m1 pairs [E, 3584, 192], stored row order
  const uint8_t* scales;      // e4m3 [E, 3584 * 24], 128x4 interleave
  const int4* tiles;          // [tile_count], expert, first row, rows, parts of FC1 that are finished
  const int32_t* tile_count;  // [1]
  uint32_t* work_counter;     // [1], next item
  const float* alpha;         // dA*dW2 [E]
  const uint8_t* hq;          // e2m1 [R, 192]
  const uint8_t* hs;          // e4m3 [R, 24]
  uint16_t* y;                // bf16 [R, 3584]
  Progress* progress;         // [1]
  finalize::Args finalize;
  int num_tokens;
  bool beside_fc1;  // the tables were complete before FC1 began, so FC2 may begin while FC1 runs
};

}  // namespace cake_moe::sm90::fc2

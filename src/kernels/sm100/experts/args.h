#pragma once

#include <cstdint>

#include "kernels/route/cta.cuh"

namespace cake_moe::sm100::experts {

struct Fc1Args {
  const uint8_t* scales;     // e4m3 [E, 768 * 224], 128x4 interleave
  uint8_t* xq;               // e2m1 [M, 1792]; written by a kernel that quantises
  uint8_t* xs;               // e4m3 [M, 224]
  const float* alpha;        // dX*dW13 [E]
  const float* beta;         // [E]
  const float* linear_beta;  // [E]
  const float* encode;       // qA [E]
};

struct Fc2Args {
  const uint8_t* scales;  // e4m3 [E, 3584 * 24], 128x4 interleave
  const float* alpha;     // dA*dW2 [E]
  uint16_t* y;            // bf16 [R, 3584]
};

// Only read by a kernel that routes and quantises for itself.
struct InputArgs {
  route::CtaArgs route;
  const uint4* x;       // bf16 [M, 3584]
  const float* encode;  // qX, 1 element
};

// Token tiles and rows as in plan/workspace.h.
struct Args {
  InputArgs input;
  Fc1Args fc1;
  Fc2Args fc2;
  const int32_t* row_route;   // [R]
  int4* tiles;                // [tile_count], expert, first row, rows, warps that have stored their part of hq and hs
  const int32_t* tile_count;  // [1]
  uint32_t* work_counter;     // [1], next unit: FC1's of all tiles, then FC2's
  uint8_t* hq;                // e2m1 [R, 192]
  uint8_t* hs;                // e4m3 [R, 24]
};

}  // namespace cake_moe::sm100::experts

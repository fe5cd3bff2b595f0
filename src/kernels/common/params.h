// Arguments of one call, as every backend's launcher takes them: raw pointers, no torch.
#pragma once

#include <cstdint>

#include "plan/problem.h"

namespace cake_moe {

// All arrays are contiguous and validated. E = 896, H = 3584, I = 384, M = num_tokens. bf16 is held as uint16_t.
struct MoeParams {
  int num_tokens;
  const uint16_t* input;      // bf16 [M, H]
  const int32_t* expert_ids;  // [M, 16]
  const void* route_weights;  // [M, 16], float32 if route_weights_are_float else bf16
  bool route_weights_are_float;
  const uint8_t* fc1_weights;  // e2m1 pairs [E, 768, 1792], stored row order (numerics/layout.h)
  const uint8_t* fc1_scales;   // e4m3 [E, 768 * 224], 128x4 interleave
  const uint8_t* fc2_weights;  // e2m1 pairs [E, 3584, 192], stored row order
  const uint8_t* fc2_scales;   // e4m3 [E, 3584 * 24], 128x4 interleave
  const float* input_encode;   // qX = 1/dX, 1 element
  const float* fc1_alpha;      // dX*dW13 [E]
  const float* hidden_encode;  // qA = 1/dA [E]
  const float* fc2_alpha;      // dA*dW2 [E]
  const float* beta;           // situ_beta [E]
  const float* linear_beta;    // situ_linear_beta [E]
  uint8_t* workspace;          // the plan's layout
  uint16_t* output;            // bf16 [M, H], every element is written
};

}  // namespace cake_moe

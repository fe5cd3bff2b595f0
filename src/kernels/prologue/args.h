#pragma once

#include <vector_types.h>

#include <cstdint>

namespace cake_moe::prologue {

struct QuantizeArgs {
  const uint4* x;       // bf16 [M, 3584]
  const float* encode;  // qX, 1 element
  uint2* xq;            // e2m1 [M, 224 blocks of 8 bytes]
  uint8_t* xs;          // e4m3 [M, 224]
  uint8_t* x_half;      // fp16 [M, 3584], K order of sm90/dequant.cuh; nullptr: the backend multiplies the codes
};

}  // namespace cake_moe::prologue

#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/params.h"
#include "plan/plan.h"

namespace cake_moe::finalize {

struct Args {
  const int32_t* route_row;   // [M, 16]
  const void* route_weights;  // [M, 16], float32 or bf16
  bool weights_are_float;
  const uint4* y;  // bf16 [R, 3584]
  uint4* output;   // bf16 [M, 3584]
};

// What the stage reads and writes, also where another kernel does its work.
Args args_of(const MoeParams& params, const Plan& plan);

}  // namespace cake_moe::finalize

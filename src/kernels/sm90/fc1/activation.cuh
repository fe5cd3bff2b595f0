// SiTU of FC1's accumulators, which carry the factors of dequant.cuh.
#pragma once

#include "kernels/common/activation.cuh"
#include "kernels/sm90/dequant.cuh"
#include "kernels/sm90/fc1/args.h"

namespace cake_moe::sm90::fc1 {

struct Activation : cake_moe::Activation {
  __device__ explicit Activation(const Constants& constants) : cake_moe::Activation(constants, kUnshift) {}
};

}  // namespace cake_moe::sm90::fc1

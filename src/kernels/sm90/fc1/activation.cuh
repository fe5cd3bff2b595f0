// SiTU of FC1's accumulators, which carry the factors of dequant.cuh.
#pragma once

#include "kernels/common/activation.cuh"
#include "kernels/sm90/dequant.cuh"
#include "kernels/sm90/fc1/args.h"
#include "kernels/sm90/spread.cuh"

namespace cake_moe::sm90::fc1 {

// An expert's constants, requested before the mainloop: behind it the whole SM would wait for them.
class SpreadConstants {
 public:
  __device__ __forceinline__ SpreadConstants(const Args& args, int expert) {
    const int index = threadIdx.x % 4;
    const float* values = index == 0   ? args.alpha
                          : index == 1 ? args.encode
                          : index == 2 ? args.beta
                                       : args.linear_beta;
    own_ = Spread(__ldg(&values[expert]));
  }
  // By whole warps.
  __device__ __forceinline__ operator Constants() const { return {own_[0], own_[1], own_[2], own_[3]}; }

 private:
  Spread<float> own_;
};

struct Activation : cake_moe::Activation {
  __device__ explicit Activation(const Constants& constants) : cake_moe::Activation(constants, kUnshift) {}
};

}  // namespace cake_moe::sm90::fc1

// out[token] = sum over k = 0..15, in that order, of weight[k] * y[row of route k]: kColumns columns of one token.
#pragma once

#include <cstdint>

#include "kernels/finalize/args.h"
#include "kernels/finalize/config.h"
#include "kernels/ptx/convert_half.cuh"
#include "numerics/fp32.h"
#include "plan/workspace.h"

namespace cake_moe::finalize {

__device__ __forceinline__ float route_weight(const Args& args, int64_t route) {
  return args.weights_are_float ? static_cast<const float*>(args.route_weights)[route]
                                : bf16_to_float(static_cast<const uint16_t*>(args.route_weights)[route]);
}

__device__ __forceinline__ float low_float(uint32_t pair) { return bits_float(pair << 16); }
__device__ __forceinline__ float high_float(uint32_t pair) { return bits_float(pair & 0xFFFF0000u); }

struct Sum {
  float columns[kColumns] = {};
  bool invalid = false;  // of a route whose expert does not exist

  __device__ __forceinline__ void add(float weight, const uint4& values) {
    const uint32_t pairs[] = {values.x, values.y, values.z, values.w};
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) {
      columns[2 * i] = fma_rn(weight, low_float(pairs[i]), columns[2 * i]);
      columns[2 * i + 1] = fma_rn(weight, high_float(pairs[i]), columns[2 * i + 1]);
    }
  }

  // In bf16; NaN if the token has an invalid route.
  __device__ __forceinline__ uint4 result() const {
    uint32_t pairs[kColumns / 2];
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) {
      const float nan = bits_float(0x7FFFFFFFu);
      pairs[i] = ptx::cvt_bf16x2(invalid ? nan : columns[2 * i + 1], invalid ? nan : columns[2 * i]);
    }
    return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
  }
};

}  // namespace cake_moe::finalize

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

// Of two neighbouring columns.
struct PairSum {
  float low = 0.0f, high = 0.0f;

  __device__ __forceinline__ void add(float weight, uint32_t pair) {
    low = fma_rn(weight, low_float(pair), low);
    high = fma_rn(weight, high_float(pair), high);
  }

  // In bf16; NaN if the token has an invalid route, one whose expert does not exist.
  __device__ __forceinline__ uint32_t result(bool invalid) const {
    const float nan = bits_float(0x7FFFFFFFu);
    return ptx::cvt_bf16x2(invalid ? nan : high, invalid ? nan : low);
  }
};

struct Sum {
  PairSum pairs[kColumns / 2];
  bool invalid = false;

  __device__ __forceinline__ void add(float weight, const uint4& values) {
    const uint32_t words[] = {values.x, values.y, values.z, values.w};
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) pairs[i].add(weight, words[i]);
  }
  __device__ __forceinline__ uint4 result() const {
    return make_uint4(pairs[0].result(invalid), pairs[1].result(invalid), pairs[2].result(invalid),
                      pairs[3].result(invalid));
  }
};

}  // namespace cake_moe::finalize

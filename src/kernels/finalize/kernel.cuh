// out[token] = sum over k = 0..15, in that order, of weight[k] * y[row of route k]. Architecture-neutral.
#pragma once

#include <cstdint>

#include "kernels/finalize/config.h"
#include "kernels/ptx/convert_half.cuh"
#include "kernels/ptx/sync.cuh"
#include "numerics/fp32.h"
#include "plan/workspace.h"

namespace cake_moe::finalize {

struct Args {
  const int32_t* route_row;   // [M, 16]
  const void* route_weights;  // [M, 16], float32 or bf16
  bool weights_are_float;
  const uint4* y;  // bf16 [R, 3584]
  uint4* output;   // bf16 [M, 3584]
};

__device__ __forceinline__ float low_float(uint32_t pair) { return bits_float(pair << 16); }
__device__ __forceinline__ float high_float(uint32_t pair) { return bits_float(pair & 0xFFFF0000u); }

__device__ __forceinline__ void accumulate(float (&sum)[kColumns], float weight, const uint4& values) {
  const uint32_t pairs[] = {values.x, values.y, values.z, values.w};
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) {
    sum[2 * i] = fma_rn(weight, low_float(pairs[i]), sum[2 * i]);
    sum[2 * i + 1] = fma_rn(weight, high_float(pairs[i]), sum[2 * i + 1]);
  }
}

__device__ __forceinline__ uint4 round_to_bf16(const float (&sum)[kColumns]) {
  uint32_t pairs[kColumns / 2];
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) {
    pairs[i] = ptx::cvt_bf16x2(sum[2 * i + 1], sum[2 * i]);
  }
  return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

// CTAs of one token are neighbours; blockDim.x divides kTokenThreads and is at least kTopK.
__global__ void __launch_bounds__(kTokenThreads, kCtasPerSm) cake_moe_finalize(const Args args) {
  __shared__ int32_t rows[kTopK];
  __shared__ float weights[kTopK];
  const int parts = kTokenThreads / blockDim.x;
  const int64_t token = blockIdx.x / parts;
  const int chunk = blockIdx.x % parts * blockDim.x + threadIdx.x;
  ptx::grid_dependency_wait();
  if (threadIdx.x < kTopK) {
    const int64_t route = token * kTopK + threadIdx.x;
    rows[threadIdx.x] = args.route_row[route];
    weights[threadIdx.x] = args.weights_are_float
                               ? static_cast<const float*>(args.route_weights)[route]
                               : bf16_to_float(static_cast<const uint16_t*>(args.route_weights)[route]);
  }
  __syncthreads();
  float sum[kColumns] = {};
  bool invalid = false;
#pragma unroll 1
  for (int batch = 0; batch < kTopK; batch += kBatch) {
    uint4 values[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const int64_t row = rows[batch + k];
      if (row >= 0) values[k] = __ldcs(&args.y[row * kTokenThreads + chunk]);
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      invalid |= rows[batch + k] == kInvalidRoute;
      if (rows[batch + k] >= 0) accumulate(sum, weights[batch + k], values[k]);
    }
  }
  if (invalid) {
#pragma unroll
    for (int i = 0; i < kColumns; ++i) sum[i] = bits_float(0x7FFFFFFFu);
  }
  args.output[token * kTokenThreads + chunk] = round_to_bf16(sum);
}

}  // namespace cake_moe::finalize

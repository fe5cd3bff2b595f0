// The finalise stage by one CTA a token or a part of it. Architecture-neutral.
#pragma once

#include "kernels/finalize/sum.cuh"
#include "kernels/ptx/pin.cuh"
#include "kernels/ptx/sync.cuh"

namespace cake_moe::finalize {

// CTAs of one token are neighbours; blockDim.x divides kTokenThreads and is at least kTopK.
__global__ void __launch_bounds__(kTokenThreads, kCtasPerSm) cake_moe_finalize(const Args args) {
  __shared__ int32_t rows[kTopK];
  __shared__ float weights[kTopK];
  const int parts = kTokenThreads / blockDim.x;
  const int64_t token = blockIdx.x / parts;
  const int chunk = blockIdx.x % parts * blockDim.x + threadIdx.x;
  // Twice, the first time without rows, while the grid before this one still runs: the code behind the wait is in the
  // instruction caches when the rows are there.
#pragma unroll 1
  for (bool ready = false;; ready = true) {
    if (ready) ptx::grid_dependency_wait();
    if (threadIdx.x < kTopK) {
      const int64_t route = token * kTopK + threadIdx.x;
      rows[threadIdx.x] = ready ? args.route_row[route] : kNoRoute;
      weights[threadIdx.x] = route_weight(args, route);
    }
    __syncthreads();
    Sum sum;
#pragma unroll 1
    for (int batch = 0; batch < kTopK; batch += kBatch) {
      uint4 values[kBatch] = {};
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        const int64_t row = rows[batch + k];
        if (row >= 0) values[k] = __ldcs(&args.y[row * kTokenThreads + chunk]);
      }
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        sum.invalid |= rows[batch + k] == kInvalidRoute;
        if (!ready || rows[batch + k] >= 0) sum.add(weights[batch + k], values[k]);
      }
    }
    uint4 result = sum.result();
    for (uint32_t* pair : {&result.x, &result.y, &result.z, &result.w}) ptx::pin(*pair);  // computed both times
    __syncthreads();  // every thread has read the rows
    if (!ready) continue;
    args.output[token * kTokenThreads + chunk] = result;
    return;
  }
}

}  // namespace cake_moe::finalize

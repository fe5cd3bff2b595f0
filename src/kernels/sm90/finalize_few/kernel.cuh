// The finalise stage for few tokens: whatever needs no y precedes the wait for the preceding grid, also the rows, which
// follow from the ids; then a thread has all of its values in flight.
#pragma once

#include "kernels/finalize/config.h"
#include "kernels/finalize/sum.cuh"
#include "kernels/ptx/pin.cuh"
#include "kernels/ptx/sync.cuh"

namespace cake_moe::sm90::finalize_few {

inline constexpr int kTokenThreads = finalize::kTokenThreads;
inline constexpr int kMostThreads = kFinalizeNarrowThreads;  // of a CTA

// route_row of a route: rows are sorted by expert, in route order inside an expert.
__device__ __forceinline__ int32_t find_row(const int32_t* ids, int num_routes, int route) {
  const auto is_expert = [](int32_t id) { return static_cast<uint32_t>(id) < kExperts; };
  const int32_t own = __ldg(&ids[route]);
  if (!is_expert(own)) return own == kNoRoute ? kNoRoute : kInvalidRoute;
  int row = 0;
  for (int r = 0; r < num_routes; ++r) {
    const int32_t id = __ldg(&ids[r]);
    row += is_expert(id) && (id < own || (id == own && r < route));
  }
  return row;
}

// A thread sums one chunk of a token; CTAs of up to kMostThreads divide it among them.
__global__ void __launch_bounds__(kMostThreads)
    cake_moe_sm90_finalize_few(const finalize::Args args, const int32_t* ids, int num_tokens) {
  __shared__ int32_t rows[kTopK];
  __shared__ float weights[kTopK];
  const int parts = kTokenThreads / blockDim.x, token = blockIdx.x / parts;
  const int chunk = blockIdx.x % parts * blockDim.x + threadIdx.x;
  if (threadIdx.x < kTopK) {
    const int route = token * kTopK + threadIdx.x;
    rows[threadIdx.x] = find_row(ids, num_tokens * kTopK, route);
    weights[threadIdx.x] = finalize::route_weight(args, route);
  }
  __syncthreads();
  uint4 values[kTopK] = {};
  // Twice, the first time without the values, while the grid before this one still runs: the code behind the wait is in
  // the instruction caches when they are there.
#pragma unroll 1
  for (bool ready = false;; ready = true) {
    if (ready) ptx::grid_dependency_wait();
#pragma unroll
    for (int k = 0; k < kTopK; ++k) {
      const int32_t row = ready ? rows[k] : kNoRoute;
      if (row >= 0) values[k] = __ldcs(&args.y[row * kTokenThreads + chunk]);
    }
    finalize::Sum sum;
#pragma unroll
    for (int k = 0; k < kTopK; ++k) {
      sum.invalid |= rows[k] == kInvalidRoute;
      if (rows[k] >= 0) sum.add(weights[k], values[k]);
    }
    uint4 result = sum.result();
    for (uint32_t* pair : {&result.x, &result.y, &result.z, &result.w}) ptx::pin(*pair);  // computed both times
    if (!ready) continue;
    args.output[token * kTokenThreads + chunk] = result;
    return;
  }
}

}  // namespace cake_moe::sm90::finalize_few

// The finalise stage for few tokens: whatever needs no y precedes the wait for the preceding grid, also the rows, which
// follow from the ids; then a thread has all of its values in flight.
#pragma once

#include "kernels/finalize/config.h"
#include "kernels/finalize/sum.cuh"
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
  ptx::grid_dependency_wait();
  uint4 values[kTopK];
#pragma unroll
  for (int k = 0; k < kTopK; ++k) {
    if (rows[k] >= 0) values[k] = __ldcs(&args.y[rows[k] * kTokenThreads + chunk]);
  }
  finalize::Sum sum;
#pragma unroll
  for (int k = 0; k < kTopK; ++k) {
    sum.invalid |= rows[k] == kInvalidRoute;
    if (rows[k] >= 0) sum.add(weights[k], values[k]);
  }
  args.output[token * kTokenThreads + chunk] = sum.result();
}

}  // namespace cake_moe::sm90::finalize_few

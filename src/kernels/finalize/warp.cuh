// The finalise stage inside another kernel: a warp takes a part, 256 columns of a token, at a time.
// Architecture-neutral.
#pragma once

#include "kernels/finalize/sum.cuh"

namespace cake_moe::finalize {

inline constexpr int kPartsOfToken = kTokenThreads / 32;
static_assert(kTokenThreads % 32 == 0 && kTopK <= 32);

// Row and weight of one route of a token, a route a lane.
struct LaneRoute {
  int32_t row;
  float weight;

  __device__ __forceinline__ LaneRoute(const Args& args, int64_t token) {
    const int64_t route = token * kTopK + threadIdx.x % kTopK;
    row = __ldcg(&args.route_row[route]);
    weight = route_weight(args, route);
  }
};

// `column` counts uint4. Every row is requested before the first is added.
__device__ __forceinline__ uint4 sum_part(const Args& args, const LaneRoute& own, int column) {
  uint4 values[kTopK];
#pragma unroll
  for (int k = 0; k < kTopK; ++k) {
    const int64_t row = __shfl_sync(~0u, own.row, k);
    if (row >= 0) values[k] = __ldcs(&args.y[row * kTokenThreads + column]);
  }
  Sum sum;
  sum.invalid = __any_sync(~0u, own.row == kInvalidRoute);
#pragma unroll
  for (int k = 0; k < kTopK; ++k) {
    const float weight = __shfl_sync(~0u, own.weight, k);
    if (__shfl_sync(~0u, own.row, k) >= 0) sum.add(weight, values[k]);
  }
  return sum.result();
}

// By one warp: parts first, first + stride, .. of all tokens.
__device__ __forceinline__ void finalize_parts(const Args& args, int num_tokens, int first, int stride) {
  const int parts = num_tokens * kPartsOfToken;
  if (first >= parts) return;
  LaneRoute own(args, first / kPartsOfToken);
#pragma unroll 1
  for (int part = first; part < parts; part += stride) {
    const LaneRoute next(args, min(part + stride, parts - 1) / kPartsOfToken);
    const int column = part % kPartsOfToken * 32 + threadIdx.x % 32;
    __stcs(&args.output[int64_t{part / kPartsOfToken} * kTokenThreads + column], sum_part(args, own, column));
    own = next;
  }
}

}  // namespace cake_moe::finalize

// The finalise stage by the finalising warps: a lane has two columns of a token.
#pragma once

#include <cstdint>

#include "kernels/finalize/sum.cuh"
#include "kernels/ptx/pin.cuh"
#include "kernels/sm90/experts/packets.cuh"
#include "kernels/sm90/experts/shared.cuh"

namespace cake_moe::sm90::experts {

inline constexpr int kTokenPairs = kHidden / 2;
static_assert(kTokenPairs % 32 == 0);

// A pair of each of a token's rows, once all of them have been written.
__device__ __forceinline__ void receive_pairs(const uint32_t* y, const int16_t (&rows)[kTopK],
                                              uint32_t (&pairs)[kTopK]) {
  bool missing;
  do {
    missing = false;
#pragma unroll
    for (int k = 0; k < kTopK; ++k) {
      if (rows[k] >= 0) pairs[k] = ptx::load_relaxed(&y[rows[k] * kTokenPairs]);
    }
#pragma unroll
    for (int k = 0; k < kTopK; ++k) missing |= pairs[k] == kUnwrittenPair;
  } while (missing);
}

__device__ __forceinline__ void finalize_pair(const Args& args, Shared& shared, int token, int pair) {
  const finalize::Args& out = args.fc2.finalize;
  int16_t rows[kTopK];
  float weights[kTopK];
#pragma unroll
  for (int k = 0; k < kTopK; ++k) {
    rows[k] = shared.route_rows[token * kTopK + k];
    weights[k] = finalize::route_weight(out, token * kTopK + k);
  }
  // Twice, the first time without the values, while FC2 still runs: the code behind the wait is in the instruction
  // caches when they are there.
#pragma unroll 1
  for (bool ready = false;; ready = true) {
    uint32_t pairs[kTopK] = {};
    if (ready) {
      ptx::mbarrier_wait(&shared.stored, 0);  // others are hardly earlier, and looking for their values takes bandwidth
      receive_pairs(reinterpret_cast<const uint32_t*>(args.fc2.y) + pair, rows, pairs);
    }
    finalize::PairSum sum;
    bool invalid = false;
#pragma unroll
    for (int k = 0; k < kTopK; ++k) {
      invalid |= rows[k] == kInvalidRoute;
      if (rows[k] >= 0) sum.add(weights[k], pairs[k]);
    }
    uint32_t result = sum.result(invalid);
    ptx::pin(result);  // computed both times
    if (!ready) continue;
    reinterpret_cast<uint32_t*>(out.output)[token * kTokenPairs + pair] = result;
    return;
  }
}

// By the finalising warps of all CTAs.
__device__ __forceinline__ void finalize_tokens(const Args& args, Shared& shared, int finalize_warp) {
  const int warp = blockIdx.x + gridDim.x * finalize_warp, warps = gridDim.x * kFinalizeWarps;
  for (int first = 32 * warp; first < args.route.num_tokens * kTokenPairs; first += 32 * warps) {
    finalize_pair(args, shared, first / kTokenPairs, first % kTokenPairs + threadIdx.x % 32);
  }
}

}  // namespace cake_moe::sm90::experts

// Routing inside every CTA, for the few tokens of a fused launch: the token tiles of the call, in the order and with
// the contents of the route stage. The first CTA also writes them to the workspace, the others only read the ids.
#pragma once

#include <cstdint>

#include "kernels/ptx/sync.cuh"
#include "kernels/route/cta_tile.cuh"
#include "plan/workspace.h"

namespace cake_moe::route {

inline constexpr int kCtaBarrier = 13;  // named barrier of the routing threads

struct CtaArgs {
  const int32_t* ids;       // [M, 16]
  int num_tokens;           // M
  int32_t* expert_offsets;  // [E + 1]
  int32_t* row_route;       // [16 * M]
  int32_t* route_row;       // [16 * M]
  int4* tiles;              // expert, first row, rows, 0 of each token tile
  int32_t* tile_count;      // [1]
};

// In shared memory.
struct CtaTiles {
  uint32_t tiles[kCtaRoutes];  // words of CtaTile
  int16_t ids[kCtaRoutes];     // -1 where a route has no expert
  int32_t count;
};

struct CtaScratch {
  alignas(16) uint32_t expert_rows[kExperts];
  uint32_t warp_sums[32];
};

// Rows in the low half, token tiles in the high half.
__device__ __forceinline__ uint32_t rows_and_tiles(uint32_t rows) {
  return rows | (rows + kCtaTileRows - 1) / kCtaTileRows << 16;
}

template <int kThreads>
__device__ __forceinline__ uint32_t exclusive_scan(uint32_t value, CtaScratch& scratch) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint32_t sum = value;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const uint32_t below = __shfl_up_sync(~0u, sum, d);
    if (lane >= d) sum += below;
  }
  if (lane == 31) scratch.warp_sums[warp] = sum;
  ptx::named_barrier(kCtaBarrier, kThreads);
  for (int w = 0; w < warp; ++w) sum += scratch.warp_sums[w];
  return sum - value;
}

template <int kThreads>
__device__ __forceinline__ void count_cta_routes(const CtaArgs& args, CtaTiles& tiles, CtaScratch& scratch) {
  const int routes = args.num_tokens * kTopK, thread = threadIdx.x;
  constexpr int kRounds = kCtaRoutes / kThreads;
  int32_t ids[kRounds];
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    const int route = i * kThreads + thread;
    ids[i] = route < routes ? __ldg(&args.ids[route]) : kNoRoute;
  }
  for (int e = thread; e < kExperts; e += kThreads) scratch.expert_rows[e] = 0;
  ptx::named_barrier(kCtaBarrier, kThreads);
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    const int route = i * kThreads + thread;
    const bool valid = static_cast<uint32_t>(ids[i]) < kExperts;
    tiles.ids[route] = static_cast<int16_t>(valid ? ids[i] : -1);
    if (valid) atomicAdd(&scratch.expert_rows[ids[i]], 1u);
    if (!valid && route < routes && blockIdx.x == 0) args.route_row[route] = ids[i] == -1 ? kNoRoute : kInvalidRoute;
  }
  ptx::named_barrier(kCtaBarrier, kThreads);
}

// By the first kThreads threads of the CTA.
template <int kThreads>
__device__ __forceinline__ void route_in_cta(const CtaArgs& args, CtaTiles& tiles, CtaScratch& scratch) {
  constexpr int kOwn = kExperts / kThreads + (kExperts % kThreads != 0);  // experts of a thread's part of the scan
  static_assert(kExperts % kOwn == 0 && kCtaRoutes % kThreads == 0);
  count_cta_routes<kThreads>(args, tiles, scratch);
  const int first = kOwn * threadIdx.x;
  const bool writer = blockIdx.x == 0;
  uint32_t counts[kOwn] = {};
  if (first < kExperts) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) counts[i] = scratch.expert_rows[first + i];
  }
  uint32_t sum = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) sum += rows_and_tiles(counts[i]);
  uint32_t before = exclusive_scan<kThreads>(sum, scratch);
  if (first < kExperts) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int expert = first + i, rows = counts[i];
      const int first_row = before & 0xFFFF, first_tile = before >> 16;
      if (writer) args.expert_offsets[expert] = first_row;
      for (int t = 0; t * kCtaTileRows < rows; ++t) {
        const int row = first_row + t * kCtaTileRows, tile_rows = min(kCtaTileRows, rows - t * kCtaTileRows);
        tiles.tiles[first_tile + t] = CtaTile(expert, row, tile_rows, t).word;
        if (writer) args.tiles[first_tile + t] = make_int4(expert, row, tile_rows, 0);
      }
      before += rows_and_tiles(counts[i]);
    }
  }
  if (threadIdx.x == kThreads - 1) {
    tiles.count = before >> 16;
    if (writer) {
      args.expert_offsets[kExperts] = before & 0xFFFF;
      *args.tile_count = before >> 16;
    }
  }
}

}  // namespace cake_moe::route

// Routing inside every CTA: the token tiles of the call, in the order and with the contents of the route stage. The
// first CTA also writes them to the workspace, the others only read the ids.
#pragma once

#include <cstdint>

#include "kernels/ptx/sync.cuh"
#include "kernels/sm90/experts/args.h"
#include "kernels/sm90/experts/shared.cuh"
#include "plan/workspace.h"

namespace cake_moe::sm90::experts {

inline constexpr int kRouteBarrier = 13;

__device__ __forceinline__ void route_barrier() { ptx::named_barrier(kRouteBarrier, kRouteThreads); }

// Rows in the low half, token tiles in the high half.
__device__ __forceinline__ uint32_t rows_and_tiles(uint32_t rows) {
  return rows | (rows + kTokens - 1) / kTokens << 16;
}

__device__ __forceinline__ uint32_t exclusive_scan(uint32_t value, RouteScratch& scratch) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint32_t sum = value;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const uint32_t below = __shfl_up_sync(~0u, sum, d);
    if (lane >= d) sum += below;
  }
  if (lane == 31) scratch.warp_sums[warp] = sum;
  route_barrier();
  for (int w = 0; w < warp; ++w) sum += scratch.warp_sums[w];
  return sum - value;
}

__device__ __forceinline__ void count_routes(const RouteArgs& args, Shared& shared) {
  const int routes = args.num_tokens * kTopK, thread = threadIdx.x;
  constexpr int kRounds = kMaxRoutes / kRouteThreads;
  int32_t ids[kRounds];
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    const int route = i * kRouteThreads + thread;
    ids[i] = route < routes ? __ldg(&args.ids[route]) : kNoRoute;
  }
  for (int e = thread; e < kExperts; e += kRouteThreads) shared.route.expert_rows[e] = 0;
  route_barrier();
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    const int route = i * kRouteThreads + thread;
    const bool valid = static_cast<uint32_t>(ids[i]) < kExperts;
    shared.ids[route] = static_cast<int16_t>(valid ? ids[i] : -1);
    if (valid) atomicAdd(&shared.route.expert_rows[ids[i]], 1u);
    if (!valid && route < routes && blockIdx.x == 0) args.route_row[route] = ids[i] == -1 ? kNoRoute : kInvalidRoute;
  }
  route_barrier();
}

// By the kRouteThreads threads of the first group.
__device__ __forceinline__ void route(const RouteArgs& args, Shared& shared) {
  count_routes(args, shared);
  const int first = kRouteExperts * threadIdx.x;
  const bool writer = blockIdx.x == 0;
  uint32_t counts[kRouteExperts] = {};
  if (first < kExperts) {
#pragma unroll
    for (int i = 0; i < kRouteExperts; ++i) counts[i] = shared.route.expert_rows[first + i];
  }
  uint32_t sum = 0;
#pragma unroll
  for (int i = 0; i < kRouteExperts; ++i) sum += rows_and_tiles(counts[i]);
  uint32_t before = exclusive_scan(sum, shared.route);
  if (first < kExperts) {
#pragma unroll
    for (int i = 0; i < kRouteExperts; ++i) {
      const int expert = first + i, rows = counts[i];
      const int first_row = before & 0xFFFF, first_tile = before >> 16;
      if (writer) args.expert_offsets[expert] = first_row;
      for (int t = 0; t * kTokens < rows; ++t) {
        const int row = first_row + t * kTokens, tile_rows = min(kTokens, rows - t * kTokens);
        shared.tiles[first_tile + t] = Tile(expert, row, tile_rows, t).word;
        if (writer) args.tiles[first_tile + t] = make_int4(expert, row, tile_rows, 0);
      }
      before += rows_and_tiles(counts[i]);
    }
  }
  if (threadIdx.x == kRouteThreads - 1) {
    shared.tile_count = before >> 16;
    if (writer) {
      args.expert_offsets[kExperts] = before & 0xFFFF;
      *args.tile_count = before >> 16;
    }
  }
}

// The routes of a tile's rows, in route order: token_routes[row]. By one warp.
__device__ __forceinline__ void find_routes(Shared& shared, const Tile& tile, int routes) {
  const int lane = threadIdx.x % 32;
  const int first = tile.ordinal() * kTokens, limit = first + tile.rows();
  __syncwarp();  // the previous tile's routes have been read
  int matches = 0;
  for (int base = 0; base < routes && matches < limit; base += 32) {
    const int route = base + lane;
    const bool match = route < routes && shared.ids[route] == tile.expert();
    const uint32_t mask = __ballot_sync(~0u, match);
    const int index = matches + __popc(mask & ((1u << lane) - 1));
    if (match && index >= first && index < limit) shared.token_routes[index - first] = route;
    matches += __popc(mask);
  }
  __syncwarp();
}

}  // namespace cake_moe::sm90::experts

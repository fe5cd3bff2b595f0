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

// Sums over experts, in one word that a scan can add.
struct Totals {
  uint64_t word;

  __device__ explicit Totals(uint64_t packed) : word(packed) {}
  __device__ static Totals of_expert(int rows) {
    const int full = rows / kTokens, rest = rows % kTokens;
    const int tiles = full + (rest > 0), cost = full * unit_cost(kTokens) + (rest > 0 ? unit_cost(rest) : 0);
    return Totals(uint64_t(cost) << 32 | uint64_t(tiles) << 16 | rows);
  }
  __device__ int rows() const { return word & 0xFFFF; }
  __device__ int tiles() const { return word >> 16 & 0xFFFF; }
  __device__ int cost() const { return word >> 32; }  // of one unit of every tile
};

// Exclusive sums over the threads, and the total.
__device__ __forceinline__ Totals exclusive_scan(const Totals& value, RouteScratch& scratch, Totals& total) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint64_t sum = value.word;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const uint64_t below = __shfl_up_sync(~0u, sum, d);
    if (lane >= d) sum += below;
  }
  if (lane == 31) scratch.warp_sums[warp] = sum;
  route_barrier();
  total.word = 0;
#pragma unroll
  for (int w = 0; w < kGroupWarps; ++w) {
    const uint64_t other = scratch.warp_sums[w];
    if (w < warp) sum += other;
    total.word += other;
  }
  return Totals(sum - value.word);
}

// The CTA's share of a GEMM with `units` units a tile: equal parts of the total cost, rounded to units. Equal numbers
// of units that divide a tile are preferred where all tiles cost the same.
struct Cut {
  int units, first_cost, last_cost;
  bool regular;

  __device__ Cut(int units_of_tile, const Totals& total) : units(units_of_tile) {
    const int ctas = gridDim.x, cta = blockIdx.x, all = total.tiles() * units;
    const int most = (all + ctas - 1) / ctas;
    regular = all == 0 || (total.cost() == total.tiles() * unit_cost(1) && most <= units && units % most == 0);
    first_cost = regular ? min(all, cta * most) : total.cost() * units * int64_t{cta} / ctas;
    last_cost = regular ? min(all, (cta + 1) * most) : total.cost() * units * int64_t{cta + 1} / ctas;
  }

  // By every thread that knows a tile: an end of the share that lies in it.
  __device__ void place(Share& share, int tile, int cost_before, int cost) const {
    const int begin = cost_before * units, end = (cost_before + cost) * units;
    if (first_cost >= begin && first_cost < end) share.begin = tile * units + (first_cost - begin) / cost;
    if (last_cost >= begin && last_cost < end) share.end = tile * units + (last_cost - begin) / cost;
  }
  // By one thread: what no tile can place.
  __device__ void finish(Share& share, const Totals& total) const {
    if (regular) share = {first_cost, last_cost};
    if (!regular && last_cost == total.cost() * units) share.end = total.tiles() * units;
  }
};
static_assert(kMaxRoutes * unit_cost(kTokens) <= INT32_MAX / kFc2Units);

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
  Totals sum(0), total(0);
#pragma unroll
  for (int i = 0; i < kRouteExperts; ++i) sum.word += Totals::of_expert(counts[i]).word;
  Totals before = exclusive_scan(sum, shared.route, total);
  const Cut fc1(kFc1Units, total), fc2(kFc2Units, total);
  if (first < kExperts) {
#pragma unroll 1
    for (int i = 0; i < kRouteExperts; ++i) {
      const int expert = first + i, rows = shared.route.expert_rows[expert];
      if (writer) args.expert_offsets[expert] = before.rows();
      int cost = before.cost();
      for (int t = 0; t * kTokens < rows; ++t) {
        const int index = before.tiles() + t, row = before.rows() + t * kTokens;
        const int tile_rows = min(kTokens, rows - t * kTokens);
        shared.tiles[index] = Tile(expert, row, tile_rows, t).word;
        if (writer) args.tiles[index] = make_int4(expert, row, tile_rows, 0);
        if (!fc1.regular) fc1.place(shared.fc1, index, cost, unit_cost(tile_rows));
        if (!fc2.regular) fc2.place(shared.fc2, index, cost, unit_cost(tile_rows));
        cost += unit_cost(tile_rows);
      }
      before.word += Totals::of_expert(rows).word;
    }
  }
  if (threadIdx.x == kRouteThreads - 1) {
    fc1.finish(shared.fc1, total);
    fc2.finish(shared.fc2, total);
    if (writer) {
      args.expert_offsets[kExperts] = total.rows();
      *args.tile_count = total.tiles();
    }
  }
}

}  // namespace cake_moe::sm90::experts

// Routing inside every CTA: the token tiles of the call, in the order and with the contents of the route stage. The
// last CTA, which has the least to do, also writes them to the workspace; the routes of a tile's rows are written by
// the CTA that has its first unit.
#pragma once

#include <cstdint>

#include "kernels/ptx/sync.cuh"
#include "kernels/sm90/experts/args.h"
#include "kernels/sm90/experts/shared.cuh"
#include "plan/workspace.h"

namespace cake_moe::sm90::experts {

inline constexpr int kRouteBarrier = 13;

__device__ __forceinline__ void route_barrier() { ptx::named_barrier(kRouteBarrier, kRouteThreads); }
__device__ __forceinline__ int route_thread() { return threadIdx.x - 32 * kConsumerWarp; }
__device__ __forceinline__ bool is_route_writer() { return blockIdx.x == gridDim.x - 1; }

// Sums over experts, in one word that a scan can add.
struct Totals {
  uint32_t word;

  __device__ explicit Totals(uint32_t packed) : word(packed) {}
  __device__ static Totals of_expert(int rows) { return Totals((rows + kTokens - 1) / kTokens << 16 | rows); }
  __device__ int rows() const { return word & 0xFFFF; }
  __device__ int tiles() const { return word >> 16; }
};

// Exclusive sums over the threads, and the total.
__device__ __forceinline__ Totals exclusive_scan(const Totals& value, RouteScratch& scratch, Totals& total) {
  const int lane = threadIdx.x % 32, warp = route_thread() / 32;
  uint32_t sum = value.word;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const uint32_t below = __shfl_up_sync(~0u, sum, d);
    if (lane >= d) sum += below;
  }
  if (lane == 31) scratch.warp_sums[warp] = sum;
  route_barrier();
  total.word = 0;
#pragma unroll
  for (int w = 0; w < kGroupWarps; ++w) {
    const uint32_t other = scratch.warp_sums[w];
    if (w < warp) sum += other;
    total.word += other;
  }
  return Totals(sum - value.word);
}

// Bit i: i divides n.
constexpr uint64_t divisors(int n) {
  uint64_t bits = 0;
  for (int i = 1; i <= n; ++i) bits |= uint64_t{n % i == 0} << i;
  return bits;
}

struct Ctas {
  __device__ int quotient(int n) const { return n / static_cast<int>(gridDim.x); }
};

// The CTA's share of a GEMM: equal numbers of units where they divide a tile, else equal parts rounded to units.
template <int kUnits, typename AllCtas>
__device__ __forceinline__ Share share_of(int tiles, const AllCtas& ctas) {
  static_assert(kUnits < 64);
  const int cta = blockIdx.x, all = tiles * kUnits, most = ctas.quotient(all + gridDim.x - 1);
  if (most < 64 && (divisors(kUnits) >> most & 1) != 0) return {min(all, cta * most), min(all, (cta + 1) * most)};
  return {static_cast<int>(ctas.quotient(all * cta)), static_cast<int>(ctas.quotient(all * (cta + 1)))};
}
static_assert(int64_t{kMaxRoutes} * kFc2Units * kMaxCtas <= INT32_MAX);

__device__ __forceinline__ void count_routes(const RouteArgs& args, Shared& shared) {
  const int routes = args.num_tokens * kTopK, thread = route_thread();
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
    if (!valid && route < routes && is_route_writer()) {
      args.route_row[route] = ids[i] == -1 ? kNoRoute : kInvalidRoute;
    }
  }
  route_barrier();
}

// By the kRouteThreads threads of the first group.
__device__ __forceinline__ void route(const RouteArgs& args, Shared& shared) {
  count_routes(args, shared);
  const int first = kRouteExperts * route_thread();
  uint32_t counts[kRouteExperts] = {};
  if (first < kExperts) {
#pragma unroll
    for (int i = 0; i < kRouteExperts; ++i) counts[i] = shared.route.expert_rows[first + i];
  }
  Totals sum(0), total(0);
#pragma unroll
  for (int i = 0; i < kRouteExperts; ++i) sum.word += Totals::of_expert(counts[i]).word;
  Totals before = exclusive_scan(sum, shared.route, total);
  if (route_thread() == kRouteThreads - 1) {
    shared.fc1 = share_of<kFc1Units>(total.tiles(), Ctas());
    shared.fc2 = share_of<kFc2Units>(total.tiles(), Ctas());
    if (is_route_writer()) {
      args.expert_offsets[kExperts] = total.rows();
      *args.tile_count = total.tiles();
    }
  }
  if (first >= kExperts) return;
#pragma unroll
  for (int i = 0; i < kRouteExperts; ++i) {
    const int rows = static_cast<int>(counts[i]);
    if (is_route_writer()) args.expert_offsets[first + i] = before.rows();
#pragma unroll 1
    for (int t = 0; t * kTokens < rows; ++t) {
      const int index = before.tiles() + t, row = before.rows() + t * kTokens;
      const int tile_rows = min(kTokens, rows - t * kTokens);
      shared.tiles[index] = Tile(first + i, row, tile_rows, t).word;
      if (is_route_writer()) args.tiles[index] = make_int4(first + i, row, tile_rows, 0);
    }
    before.word += Totals::of_expert(rows).word;
  }
}

}  // namespace cake_moe::sm90::experts

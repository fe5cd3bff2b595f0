// Routing inside every CTA: one route a thread of the weight warps, whose place follows from comparing its expert with
// those of all others. Tiles and rows in the order of the route stage; the last CTA, which has the least to do, also
// writes the rows to the workspace.
#pragma once

#include <cstdint>

#include "kernels/ptx/pin.cuh"
#include "kernels/ptx/sync.cuh"
#include "kernels/sm90/experts/args.h"
#include "kernels/sm90/experts/shared.cuh"
#include "plan/workspace.h"

namespace cake_moe::sm90::experts {

inline constexpr int kRouteBarrier = 12;

__device__ __forceinline__ bool is_route_writer() { return blockIdx.x == gridDim.x - 1; }

inline constexpr uint8_t kFirstOfTile = kMaxRoutes;  // a bit of row_routes beside the route
static_assert((kMaxRoutes & (kMaxRoutes - 1)) == 0 && 2 * kMaxRoutes <= 256);

// Ascending keys are the order of the rows; routes without an expert (kExperts) come last.
__device__ __forceinline__ uint32_t route_key(int expert, int route) { return expert * kMaxRoutes + route; }

// A route's row, and the rows of its expert.
struct Place {
  int row = 0, first = 0, end = 0;

  __device__ Place(const uint32_t* keys, int routes, int expert, int route) {
    const uint32_t own = route_key(expert, route), lowest = route_key(expert, 0), above = route_key(expert + 1, 0);
    for (int at = 0; at < routes; at += kTopK) {
#pragma unroll
      for (int i = at; i < at + kTopK; i += 4) {
        const uint4 four = *reinterpret_cast<const uint4*>(&keys[i]);
        for (const uint32_t key : {four.x, four.y, four.z, four.w}) {
          row += key < own;
          first += key < lowest;
          end += key < above;
        }
      }
    }
  }
  __device__ int ordinal() const { return row - first; }
};

// The grid's CTAs as a divisor, ready before the ids are: a quotient is a product. Exact up to kMost, for the error of
// the reciprocal is below 2^-32 * CTAs.
struct Ctas {
  static constexpr uint32_t kMost = kMaxRoutes * kFc2Units * kMaxCtas;
  static_assert(kMost <= UINT32_MAX / kMaxCtas);

  uint32_t reciprocal = UINT32_MAX / gridDim.x + 1;  // of at least two CTAs

  __device__ Ctas() { ptx::pin(reciprocal); }
  __device__ uint32_t quotient(uint32_t n) const { return gridDim.x == 1 ? n : __umulhi(n, reciprocal); }
};

// Bit i: i divides n.
constexpr uint64_t divisors(int n) {
  uint64_t bits = 0;
  for (int i = 1; i <= n; ++i) bits |= uint64_t{n % i == 0} << i;
  return bits;
}

// The CTA's share of a GEMM: equal numbers of units where they divide a tile, else equal parts rounded to units.
template <int kUnits>
__device__ __forceinline__ Share share_of(int tiles, const Ctas& ctas) {
  static_assert(kUnits < 64);
  const int cta = blockIdx.x, all = tiles * kUnits, most = ctas.quotient(all + gridDim.x - 1);
  if (most < 64 && (divisors(kUnits) >> most & 1) != 0) return {min(all, cta * most), min(all, (cta + 1) * most)};
  return {static_cast<int>(ctas.quotient(all * cta)), static_cast<int>(ctas.quotient(all * (cta + 1)))};
}

// The expert of a weight warp thread's route.
__device__ __forceinline__ int32_t load_id(const RouteArgs& args) {
  const int route = threadIdx.x - 32 * kWeightWarp;
  return route < args.num_tokens * kTopK ? __ldg(&args.ids[route]) : kNoRoute;
}

// By both weight warps, with what load_id gave them.
__device__ __forceinline__ void route_tokens(const RouteArgs& args, Shared& shared, int32_t id) {
  const int routes = args.num_tokens * kTopK, route = threadIdx.x - 32 * kWeightWarp;
  const auto barrier = [] { ptx::named_barrier(kRouteBarrier, kMaxRoutes); };
  const Ctas ctas;
  const bool valid = static_cast<uint32_t>(id) < kExperts;
  const int expert = valid ? id : kExperts;
  shared.route_keys[route] = route_key(expert, route);
  barrier();
  const Place place(shared.route_keys, routes, expert, route);
  const bool first_of_tile = valid && place.ordinal() % kTokens == 0;
  if (route < routes) shared.row_routes[place.row] = route | (first_of_tile ? kFirstOfTile : 0);
  const int route_row = valid ? place.row : id == -1 ? kNoRoute : kInvalidRoute;
  shared.route_rows[route] = static_cast<int16_t>(route_row);
  barrier();
  const auto first_in = [&](int row) { return row < routes && (shared.row_routes[row] & kFirstOfTile) != 0; };
  const int lane = threadIdx.x % 32;
  const uint64_t firsts = uint64_t{__ballot_sync(~0u, first_in(32 + lane))} << 32 | __ballot_sync(~0u, first_in(lane));
  const int tiles = __popcll(firsts), tile = __popcll(firsts & ((uint64_t{1} << place.row) - 1));
  const int rows = min(kTokens, place.end - place.row);
  if (first_of_tile) shared.tiles[tile] = Tile(id, place.row, rows, place.ordinal() / kTokens).word;
  if (route == 0) shared.fc1 = share_of<kFc1Units>(tiles, ctas);
  if (route == 32) shared.fc2 = share_of<kFc2Units>(tiles, ctas);
  barrier();
  if (!is_route_writer() || route >= routes) return;
  args.route_row[route] = route_row;
  if (valid) args.row_route[place.row] = route;
}

// By the finalising warps.
__device__ __forceinline__ void write_expert_offsets(const RouteArgs& args, const Shared& shared) {
  if (!is_route_writer()) return;
  for (int expert = threadIdx.x - 32 * kFinalizeWarp; expert <= kExperts; expert += 32 * kFinalizeWarps) {
    int rows = 0;
    for (int r = 0; r < args.num_tokens * kTopK; ++r) rows += shared.route_keys[r] < route_key(expert, 0);
    args.expert_offsets[expert] = rows;
  }
}

}  // namespace cake_moe::sm90::experts

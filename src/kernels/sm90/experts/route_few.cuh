// Routing of few tokens: one route a thread of the weight warps, whose place follows from comparing its expert with
// those of all others. Same tiles as route.cuh; the last CTA again writes them to the workspace.
#pragma once

#include <cstdint>

#include "kernels/ptx/sync.cuh"
#include "kernels/sm90/experts/args.h"
#include "kernels/sm90/experts/route.cuh"
#include "kernels/sm90/experts/shared.cuh"
#include "plan/workspace.h"

namespace cake_moe::sm90::experts {

inline constexpr int kFewRouteBarrier = 12;
inline constexpr uint8_t kFirstOfTile = kFewRoutes;  // a bit of row_routes beside the route
static_assert((kFewRoutes & (kFewRoutes - 1)) == 0 && 2 * kFewRoutes <= 256);

// Before the grid barrier: no count may be raised earlier. By the whole CTA.
__device__ __forceinline__ void clear_tile_counts(const RouteArgs& args) {
  const int tile = threadIdx.x;
  if (is_route_writer() && tile < args.num_tokens * kTopK) args.tiles[tile].w = 0;
}

// A route's place among the rows: behind those of smaller experts and the `earlier` ones of its own. Routes without an
// expert come last.
struct Place {
  int smaller = 0, earlier = 0, same = 0;

  __device__ Place(const int16_t* ids, int routes, int route) {
    const auto key = [ids](int r) { return static_cast<uint16_t>(ids[r]); };
    const uint16_t own = key(route);
    for (int first = 0; first < routes; first += kTopK) {
#pragma unroll
      for (int r = first; r < first + kTopK; ++r) {
        smaller += key(r) < own;
        same += key(r) == own;
        earlier += key(r) == own && r < route;
      }
    }
  }
  __device__ int row() const { return smaller + earlier; }
};

// The expert of a weight warp thread's route.
__device__ __forceinline__ int32_t load_id(const RouteArgs& args) {
  const int route = threadIdx.x - 32 * kWeightWarp;
  return route < args.num_tokens * kTopK ? __ldg(&args.ids[route]) : kNoRoute;
}

// By both weight warps, with what load_id gave them.
__device__ __forceinline__ void route_few(const RouteArgs& args, Shared& shared, int32_t id) {
  const int routes = args.num_tokens * kTopK, route = threadIdx.x - 32 * kWeightWarp;
  const auto barrier = [] { ptx::named_barrier(kFewRouteBarrier, kFewRoutes); };
  const bool valid = static_cast<uint32_t>(id) < kExperts;
  shared.ids[route] = static_cast<int16_t>(valid ? id : -1);
  barrier();
  const Place place(shared.ids, routes, route);
  const bool first_of_tile = valid && place.earlier % kTokens == 0;
  if (route < routes) shared.row_routes[place.row()] = route | (first_of_tile ? kFirstOfTile : 0);
  barrier();
  const auto first_in = [&](int row) { return row < routes && (shared.row_routes[row] & kFirstOfTile) != 0; };
  const int lane = threadIdx.x % 32;
  const uint64_t firsts = uint64_t{__ballot_sync(~0u, first_in(32 + lane))} << 32 | __ballot_sync(~0u, first_in(lane));
  if (route % 32 == 0)
    (route == 0 ? shared.fc1 : shared.fc2) = share_of(__popcll(firsts), route == 0 ? kFc1Units : kFc2Units);
  const int tile = __popcll(firsts & ((uint64_t{1} << place.row()) - 1));
  const int rows = min(kTokens, place.same - place.earlier);
  if (first_of_tile) shared.tiles[tile] = Tile(id, place.row(), rows, place.earlier / kTokens).word;
  barrier();
  if (!is_route_writer() || route >= routes) return;
  args.route_row[route] = valid ? place.row() : id == -1 ? kNoRoute : kInvalidRoute;
  if (valid) args.row_route[place.row()] = route;
  if (first_of_tile) {
    int4& to = args.tiles[tile];
    to.x = id;
    to.y = place.row();
    to.z = rows;
  }
  if (route == 0) *args.tile_count = __popcll(firsts);
}

// By the token warps, which few tokens leave without work.
__device__ __forceinline__ void write_expert_offsets(const RouteArgs& args, const Shared& shared) {
  if (!is_route_writer()) return;
  for (int expert = threadIdx.x - 32 * kTokenWarp; expert <= kExperts; expert += kFewRoutes) {
    int rows = 0;
    for (int r = 0; r < args.num_tokens * kTopK; ++r) rows += static_cast<uint16_t>(shared.ids[r]) < expert;
    args.expert_offsets[expert] = rows;
  }
}

}  // namespace cake_moe::sm90::experts

// Routes -> rows sorted by expert, ascending route index inside an expert: a stable counting sort by one CTA or one
// cluster. Each warp owns a contiguous range of routes; counting, prefix sums over (CTA, warp), then stable ranks by
// matching equal ids inside a warp. No step depends on the order of atomics, so the result is reproducible.
#pragma once

#include <cstdint>

#include "kernels/ptx/sync.cuh"
#include "kernels/route/args.h"
#include "kernels/route/config.h"
#include "plan/workspace.h"

namespace cake_moe::route {

template <int kThreads_>
struct Shared {
  static constexpr int kThreads = kThreads_, kWarps = kThreads / 32;

  alignas(16) uint32_t next_row[kWarps][kExperts];  // first a count, then the next row of a warp's routes of an expert
  uint32_t cta_rows[kExperts];                      // this CTA's routes of an expert; read by the cluster
  uint32_t cta_first[kExperts];                     // routes of an expert in the CTAs before this one
  uint32_t expert_rows[kExperts];
  uint64_t warp_sums[kWarps];
};

__device__ __forceinline__ bool is_expert(int32_t id) { return static_cast<uint32_t>(id) < kExperts; }

// Equal tiles of an expert's rows, up to the last 8.
struct TileSplit {
  int count, groups;  // tiles; groups of 8 rows
  __device__ TileSplit(int expert_rows, int tile_tokens)
      : count((expert_rows + tile_tokens - 1) / tile_tokens), groups((expert_rows + 7) / 8) {}
  __device__ int first_row(int tile) const { return 8 * (groups * tile / count); }
};

// The routes of a warp, a contiguous range, and their ids. Those of kRounds rounds of 32 are loaded together; where
// they are all, once.
class WarpRoutes {
 public:
  __device__ __forceinline__ WarpRoutes(const Args& args, int warps_of_cta) : source_(args.ids) {
    const int routes = args.num_tokens * kTopK, warps = static_cast<int>(ptx::cluster_size()) * warps_of_cta;
    const int share = (routes + warps * 32 - 1) / (warps * 32) * 32;
    const int warp = static_cast<int>(ptx::cluster_rank()) * warps_of_cta + static_cast<int>(threadIdx.x) / 32;
    begin_ = min(routes, warp * share);
    end_ = min(routes, begin_ + share);
    load(begin_);
  }

  // body(route, id) by the whole warp, a route a lane, in order; beyond the last one, -1 and no expert.
  template <typename Body>
  __device__ __forceinline__ void for_each(const Body& body) {
    for (int first = begin_; first < end_; first += 32 * kRounds) {
      if (first != loaded_) load(first);
#pragma unroll
      for (int i = 0; i < kRounds; ++i) {
        const int round = first + 32 * i, route = round + static_cast<int>(threadIdx.x) % 32;
        if (round >= end_) break;
        body(route < end_ ? route : -1, ids_[i]);
      }
    }
  }

 private:
  static constexpr int kRounds = 16;

  __device__ __forceinline__ void load(int first) {
    loaded_ = first;
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      const int route = first + 32 * i + static_cast<int>(threadIdx.x) % 32;
      ids_[i] = route < end_ ? source_[route] : kNoRoute;
    }
  }

  const int32_t* source_;
  int begin_, end_, loaded_;
  int32_t ids_[kRounds];
};

template <typename S>
__device__ __forceinline__ void count_routes(WarpRoutes& routes, S& shared) {
  for (int i = threadIdx.x; i < S::kWarps * kExperts / 4; i += S::kThreads) {
    reinterpret_cast<uint4*>(shared.next_row)[i] = uint4{};
  }
  __syncthreads();
  uint32_t* rows = shared.next_row[threadIdx.x / 32];
  routes.for_each([&](int, int32_t id) {
    if (is_expert(id)) atomicAdd(&rows[id], 1u);
  });
  __syncthreads();
}

// next_row becomes the number of an expert's routes in the CTA's earlier warps.
template <typename S>
__device__ __forceinline__ void scan_warps(S& shared) {
  for (int e = threadIdx.x; e < kExperts; e += S::kThreads) {
    uint32_t sum = 0;
#pragma unroll
    for (int w = 0; w < S::kWarps; ++w) {
      const uint32_t count = shared.next_row[w][e];
      shared.next_row[w][e] = sum;
      sum += count;
    }
    shared.cta_rows[e] = sum;
  }
}

template <typename S>
__device__ __forceinline__ void scan_cluster(S& shared) {
  const uint32_t rank = ptx::cluster_rank(), size = ptx::cluster_size();
  for (int e = threadIdx.x; e < kExperts; e += S::kThreads) {
    uint32_t rows[kMostCtas];  // all are under way before one is used
#pragma unroll
    for (uint32_t c = 0; c < kMostCtas; ++c) rows[c] = c < size ? ptx::load_cluster(&shared.cta_rows[e], c) : 0;
    uint32_t first = 0, all = 0;
#pragma unroll
    for (uint32_t c = 0; c < kMostCtas; ++c) {
      first += c < rank ? rows[c] : 0;
      all += rows[c];
    }
    shared.cta_first[e] = first;
    shared.expert_rows[e] = all;
  }
  __syncthreads();
}

// Exclusive sum over the threads of the CTA, and the total.
template <typename S>
__device__ __forceinline__ uint64_t exclusive_scan(uint64_t value, S& shared, uint64_t& total) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint64_t sum = value;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const uint64_t below = __shfl_up_sync(~0u, sum, d);
    if (lane >= d) sum += below;
  }
  if (lane == 31) shared.warp_sums[warp] = sum;
  __syncthreads();
  total = 0;
  for (int w = 0; w < S::kWarps; ++w) {
    const uint64_t other = shared.warp_sums[w];
    if (w < warp) sum += other;
    total += other;
  }
  return sum - value;
}

// Sums over experts, in one word that a scan can add: rows, tiles of experts with one, tiles of experts with several.
struct Totals {
  static constexpr int kBits = 21;
  uint64_t word;

  __device__ static Totals of(int rows, int tiles) {
    return {static_cast<uint64_t>(rows) | static_cast<uint64_t>(tiles) << (tiles == 1 ? kBits : 2 * kBits)};
  }
  __device__ int field(int i) const { return static_cast<int>(word >> (i * kBits) & ((1u << kBits) - 1)); }
  __device__ int rows() const { return field(0); }
  __device__ int single() const { return field(1); }
  __device__ int several() const { return field(2); }
};

// The order of the tiles: those of experts with several, which take arithmetic, are spread evenly among those of
// experts with one, which take memory traffic. Inside a kind they keep the experts' order.
struct TileOrder {
  int single, several;  // of all experts

  __device__ int of_single(int i) const { return i + (several * (2 * i + 1) + single) / (2 * single); }
  __device__ int of_several(int i) const { return i + (single * (2 * i + 1) + several - 1) / (2 * several); }
};
static_assert(int64_t{kExperts} * (2 * (kMaxTokens * kTopK / kMinTileTokens + kExperts) + 1) < INT32_MAX);

// Every CTA needs the offsets; the tiles are shared out.
template <typename S>
__device__ __forceinline__ void place_experts(const Args& args, S& shared) {
  const uint32_t rank = ptx::cluster_rank(), size = ptx::cluster_size();
  constexpr int kOwn = (kExperts + S::kThreads - 1) / S::kThreads;  // experts of a thread
  const int first = kOwn * threadIdx.x;
  uint64_t sums[kOwn] = {}, sum = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    if (first + i >= kExperts) break;
    const uint32_t rows = shared.expert_rows[first + i];
    sums[i] = Totals::of(rows, TileSplit(rows, args.tile_tokens).count).word;
    sum += sums[i];
  }
  Totals all, before;
  before.word = exclusive_scan(sum, shared, all.word);
  const TileOrder order = {all.single(), all.several()};
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int e = first + i;
    if (e >= kExperts) break;
    const uint32_t offset = before.rows();
    const uint32_t warp_offset = offset + shared.cta_first[e];
    for (int w = 0; w < S::kWarps; ++w) shared.next_row[w][e] += warp_offset;
    const int rows = shared.expert_rows[e];
    const TileSplit split(rows, args.tile_tokens);
    for (int t = rank; t < split.count; t += size) {
      const int first_row = split.first_row(t), end = min(split.first_row(t + 1), rows);
      const int at = split.count == 1 ? order.of_single(before.single()) : order.of_several(before.several() + t);
      args.tiles[at] = make_int4(e, static_cast<int>(offset) + first_row, end - first_row, 0);
    }
    before.word += sums[i];
    if (rank != 0) continue;
    args.expert_offsets[e] = offset;
    if (e == kExperts - 1) {
      args.expert_offsets[kExperts] = before.rows();
      *args.tile_count = before.single() + before.several();
      *args.work_counter = 0;
      for (int i = 0; args.progress != nullptr && i < 3; ++i) args.progress[i] = 0;
    }
  }
  __syncthreads();
}

template <typename S>
__device__ __forceinline__ void rank_routes(const Args& args, WarpRoutes& routes, S& shared) {
  const int lane = threadIdx.x % 32;
  uint32_t* next_row = shared.next_row[threadIdx.x / 32];
  routes.for_each([&](int route, int32_t id) {
    const bool valid = is_expert(id);
    const uint32_t same = __match_any_sync(~0u, valid ? id : -1);
    const uint32_t first = valid ? next_row[id] : 0;
    __syncwarp();
    if (valid && lane == __ffs(same) - 1) next_row[id] = first + __popc(same);
    __syncwarp();
    const int32_t row = static_cast<int32_t>(first + __popc(same & ((1u << lane) - 1)));
    if (valid) args.row_route[row] = route;
    if (route >= 0) args.route_row[route] = valid ? row : id == -1 ? kNoRoute : kInvalidRoute;
  });
}

// By all threads of every CTA of the cluster, of at most kMostCtas.
template <typename S>
__device__ __forceinline__ void route_tokens(const Args& args, S& shared) {
  WarpRoutes routes(args, S::kWarps);
  count_routes(routes, shared);
  scan_warps(shared);
  ptx::cluster_barrier();  // cta_rows of every CTA written
  scan_cluster(shared);
  ptx::cluster_arrive();  // cta_rows of the others read
  place_experts(args, shared);
  rank_routes(args, routes, shared);
  ptx::cluster_wait();  // cta_rows of this CTA no longer read
}

}  // namespace cake_moe::route

// FC2. A unit is one token tile by 128 stored weight rows. The warpgroups of a CTA take its units in turn, each with a
// ring of weights of its own that one of its threads fills: no group waits for another, so that one dequantises or
// stores while another multiplies. The tile's tokens stay in shared memory for all of its units; only where the tile
// changes does the whole CTA meet.
//
//   one thread of the group  --- arrived[group][slot] --->  the group   (weights and scales by bulk copies)
//   one thread of the group  <-- named barrier -----------  the group   (the slot's weights are in registers)
#pragma once

#include "kernels/ptx/sync.cuh"
#include "kernels/sm90/fc2/epilogue.cuh"
#include "kernels/sm90/fc2/feed.cuh"
#include "kernels/sm90/fc2/tokens.cuh"

namespace cake_moe::sm90::fc2 {

template <typename C>
class Warpgroup {
 public:
  // Requests its first weights.
  __device__ __forceinline__ Warpgroup(const Args& args, Shared<C>& shared, const Schedule<C>& schedule, int group)
      : args_(args), shared_(shared), schedule_(schedule), group_(group), feeder_(args, shared, schedule, group) {}

  // All units, tile by tile, with the other groups.
  __device__ __forceinline__ void run() {
    TileWalk<C> walk;
    walk.start();
    bool more = walk.next(schedule_);
    if (more) word_ = Tile::load_word(args_, walk.tile);
    while (more) {
      const Tile tile(args_, word_);
      load_tokens(tile);
      TileWalk<C> ahead = walk;
      more = ahead.next(schedule_);
      if (more) word_ = Tile::load_word(args_, ahead.tile);
      compute_tile(walk, tile);
      walk = ahead;
    }
  }

 private:
  // Packed tokens are on their way while the slower groups end the previous tile.
  __device__ __forceinline__ void load_tokens(const Tile& tile) {
    const TokenPieces<C> pieces(args_, tile.rows);
    __syncthreads();  // no warpgroup multiplies the previous tile any more
    pieces.dequantize(shared_.tokens, tile.rows);
    ptx::fence_async_shared();
    __syncthreads();  // the tile is complete
  }

  // The group's units of the tile. Before the last of the first group the next tile's rows are brought into L2.
  __device__ __forceinline__ void compute_tile(const TileWalk<C>& walk, const Tile& tile) {
    for (int index; (index = unit_index<C>(group_, position_)) < walk.end; ++position_) {
      const int subtile = position_ % kUnitSubtiles;
      if (group_ == 0 && subtile == 0 && index + C::kGroups >= walk.end && walk.end < schedule_.units) {
        const int4 next = Tile::rows_of(word_);
        if (feeds(group_)) prefetch_tokens(args_, next);
        __syncwarp();
      }
      compute_subtile(tile, walk.row_block(index) * C::kUnitRows + subtile * kSubtileRows);
    }
  }

  // By MMAs no wider than the tile's rows need: every group takes the same branch, for all work on one tile.
  template <int kN = C::kTokens>
  __device__ __forceinline__ void compute_subtile(const Tile& tile, int first_column) {
    if constexpr (kN > C::kLeastColumns) {
      if (tile.rows.z <= kN - C::kColumnStep) return compute_subtile<kN - C::kColumnStep>(tile, first_column);
    }
    const RingPlace<C> place(position_);
    const auto& ring = shared_.rings[group_];
    float acc[kN / 2];
    ptx::mbarrier_wait(&shared_.arrived[group_][place.slot], place.phase);
    accumulate<C, kN>(ring.weights[place.slot], ring.scales[place.scale_slot], shared_.tokens,
                      position_ % kUnitSubtiles, acc, [&] { feeder_.refill(position_); });
    store_subtile<C, kN>(args_, tile.rows, tile.factor, first_column, acc);
  }

  const Args& args_;
  Shared<C>& shared_;
  const Schedule<C>& schedule_;
  const int group_;
  Feeder<C> feeder_;
  int position_ = 0;  // subtiles done
  int word_ = 0;      // of the next tile's rows
};

template <typename C>
__device__ __forceinline__ void init_barriers(Shared<C>& shared) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < C::kGroups * C::kSlots; ++i) ptx::mbarrier_init(&shared.arrived[0][0] + i, 1);
    ptx::mbarrier_init_fence();
  }
  __syncthreads();
}

template <typename C>
__global__ void __launch_bounds__(C::kThreads, C::kRegisterCtas) cake_moe_sm90_fc2(const Args args) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared<C>& shared = *reinterpret_cast<Shared<C>*>(memory);
  static_assert(sizeof(Shared<C>) <= max_smem_bytes(C::kCtasPerSm));
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  init_barriers(shared);
  // The route stage ended before FC1 let this grid start: the token tiles may be read, and the first weights loaded,
  // while FC1 still runs.
  const Schedule<C> schedule(__ldcg(args.tile_count));
  ptx::grid_launch_dependents();
  Warpgroup<C> warpgroup(args, shared, schedule, group);
  ptx::grid_dependency_wait();
  warpgroup.run();
}

}  // namespace cake_moe::sm90::fc2

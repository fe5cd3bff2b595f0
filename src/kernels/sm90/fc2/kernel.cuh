// FC2. A unit is one token tile by 128 stored weight rows. The warpgroups of a CTA take its units in turn, each by
// itself: it requests its weights into a ring of its own, waits for nobody, and so one dequantises or stores while
// another multiplies. The tile's tokens stay in shared memory for all of its units; only where the tile changes does
// the whole CTA meet.
//
//   one thread of the group  --- arrived[group][slot] --->  the group   (weights and scales by bulk copies)
//   one thread of the group  <-- named barrier -----------  the group   (the slot's weights are in registers)
#pragma once

#include "kernels/ptx/sync.cuh"
#include "kernels/sm90/fc2/epilogue.cuh"
#include "kernels/sm90/fc2/feed.cuh"
#include "kernels/sm90/fc2/tokens.cuh"

namespace cake_moe::sm90::fc2 {

// Packed tokens are on their way while the slower groups end the previous tile.
template <typename C>
__device__ __forceinline__ void load_tokens(const Args& args, Shared<C>& shared, const int4& tile) {
  const TokenPieces<C> pieces(args, tile);
  __syncthreads();  // no warpgroup multiplies the previous tile any more
  pieces.dequantize(shared.tokens, tile);
  ptx::fence_async_shared();
  __syncthreads();  // the tile is complete
}

// What a warpgroup knows of the tile that it multiplies.
struct Tile {
  int4 rows;     // expert, first row, rows, 0
  float factor;  // of the sums
};

// The group's `position`-th subtile. Every group takes the same branch: all work on one tile.
template <typename C, int kN = C::kTokens>
__device__ __forceinline__ void compute_subtile(const Args& args, Shared<C>& shared, Feeder<C>& feeder, int group,
                                                int position, const Tile& tile, int first_column) {
  if constexpr (kN > C::kLeastColumns) {
    if (tile.rows.z <= kN - C::kColumnStep) {
      compute_subtile<C, kN - C::kColumnStep>(args, shared, feeder, group, position, tile, first_column);
      return;
    }
  }
  const RingPlace<C> place(position);
  const auto& ring = shared.rings[group];
  float acc[kN / 2];
  ptx::mbarrier_wait(&shared.arrived[group][place.slot], place.phase);
  accumulate<C, kN>(ring.weights[place.slot], ring.scales[place.scale_slot], shared.tokens, position % kUnitSubtiles,
                    acc, [&] { feeder.refill(position); });
  store_subtile<C, kN>(args, tile.rows, tile.factor, first_column, acc);
}

template <typename C>
__device__ __forceinline__ void compute(const Args& args, Shared<C>& shared, const Schedule<C>& schedule,
                                        Feeder<C>& feeder, int group) {
  int position = 0;
  TileWalk<C> walk;
  walk.start();
  while (walk.next(schedule)) {
    Tile tile;
    tile.rows = __ldcg(&args.tiles[walk.tile]);
    tile.factor = __ldg(&args.alpha[tile.rows.x]) * kUnshift;
    load_tokens(args, shared, tile.rows);
    for (int index; (index = unit_index<C>(group, position)) < walk.end; ++position) {
      const int row = walk.row_block(index) * C::kUnitRows + position % kUnitSubtiles * kSubtileRows;
      compute_subtile<C>(args, shared, feeder, group, position, tile, row);
    }
  }
}

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
  Feeder<C> feeder(args, shared, schedule, group);
  ptx::grid_dependency_wait();
  compute(args, shared, schedule, feeder, group);
}

}  // namespace cake_moe::sm90::fc2

// FC2 and finalise. A unit is one token tile by kUnitRows stored weight rows, 64 of them for each consumer warpgroup;
// the ring lets one warpgroup run ahead, so that one stores while another multiplies. The tile's tokens stay in shared
// memory for all of its units.
//
//   producer  --- unit_arrived[slot] --->  consumers   (weights and scales by bulk copies)
//   producer  <-- unit_consumed[slot] ---  consumers   (one arrival a warp)
#pragma once

#include "kernels/sm90/fc2/epilogue.cuh"
#include "kernels/sm90/fc2/finish.cuh"
#include "kernels/sm90/spread.cuh"

namespace cake_moe::sm90::fc2 {

// `group`'s rows of the unit in the slot. Every consumer takes the same branch: all work on one tile.
template <typename C, int kN = C::kTokens>
__device__ __forceinline__ void compute_subtile(const Args& args, Shared<C>& shared, int slot, int group,
                                                const int4& tile, float factor, int first_column) {
  constexpr int kNext = C::narrower(kN);
  if constexpr (kNext > 0) {
    if (tile.z <= kNext) {
      compute_subtile<C, kNext>(args, shared, slot, group, tile, factor, first_column);
      return;
    }
  }
  float acc[kN / 2];
  accumulate<C, kN>(shared.slots[slot], shared.tokens, group, acc);
  if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared.unit_consumed[slot]);
  store_subtile<C, kN>(args, tile, factor, first_column, acc);
}

template <typename C>
__device__ __forceinline__ void consume(const Args& args, Shared<C>& shared, const Schedule& schedule, int group) {
  const auto tile_of = [](int unit) { return unit / C::kRowBlocks; };
  const auto request = [&](int index) {
    return Spread(__ldcg(reinterpret_cast<const int*>(&args.tiles[index]) + threadIdx.x % 4));
  };
  RingPosition<C::kSlots> at;
  int current = -1;
  int4 tile{};
  float factor = 0.0f;
  Spread<int> upcoming;
  if (schedule.first < schedule.limit) upcoming = request(tile_of(schedule.first));
  schedule.for_each([&](int unit, int next) {
    if (tile_of(unit) != current) {
      current = tile_of(unit);
      tile = {upcoming[0], upcoming[1], upcoming[2], 0};
      factor = __ldg(&args.alpha[tile.x]) * kUnshift;
      load_tokens(args, shared, tile);
    }
    if (next >= 0 && tile_of(next) != current) upcoming = request(tile_of(next));
    ptx::mbarrier_wait(&shared.unit_arrived[at.slot], at.phase);
    compute_subtile<C>(args, shared, at.slot, group, tile, factor, unit % C::kRowBlocks * C::kUnitRows + 64 * group);
    at.advance();
  });
}

template <typename C>
__device__ __forceinline__ void init_barriers(Shared<C>& shared) {
  if (threadIdx.x == 0) {
    for (int slot = 0; slot < C::kSlots; ++slot) {
      ptx::mbarrier_init(&shared.unit_arrived[slot], 1);
      ptx::mbarrier_init(&shared.unit_consumed[slot], 4 * C::kConsumers);
    }
    ptx::mbarrier_init_fence();
  }
  __syncthreads();
}

template <typename C>
__global__ void __launch_bounds__(C::kThreads, C::kCtasPerSm) cake_moe_sm90_fc2(const Args args) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared<C>& shared = *reinterpret_cast<Shared<C>*>(memory);
  static_assert(smem_bytes<C> <= max_smem_bytes(C::kCtasPerSm));
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  init_barriers(shared);
  // The route stage ended before FC1 let this grid start: the token tiles may be read, and the first weights loaded,
  // while FC1 still runs.
  const Schedule schedule(__ldcg(args.tile_count), C::kRowBlocks);
  ptx::grid_launch_dependents();
  if (warp >= 4 * C::kConsumers) {
    if constexpr (C::kProducerWarps == 4) ptx::lower_registers<C::kProducerRegisters>();
    if (threadIdx.x == C::kConsumerThreads) produce(args, shared, schedule);
  } else {
    if constexpr (C::kProducerWarps == 4) ptx::raise_registers<C::kConsumerRegisters>();
    ptx::grid_dependency_wait();
    if (threadIdx.x == 0) atomicAdd(&args.progress->started, 1);
    consume(args, shared, schedule, warp / 4);
    finish(args, shared);
  }
}

}  // namespace cake_moe::sm90::fc2

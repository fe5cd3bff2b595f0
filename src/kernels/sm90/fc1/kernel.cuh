// FC1, SiTU and requantisation. A unit is one token tile by kTileRows stored weight rows; CTAs take units round robin,
// so that neighbouring CTAs share a tile's tokens and an expert's weights in L2. Where several CTAs share a unit, each
// brings all of it, but for the first time out of L2, and computes a part.
//
//   producers  --- weights_arrived, tokens_arrived --->    consumers
//   producers  <-- weights_consumed, tokens_consumed ---   consumers   (one arrival a warp)
#pragma once

#include "kernels/sm90/fc1/epilogue.cuh"
#include "kernels/sm90/fc1/mainloop.cuh"
#include "kernels/sm90/fc1/produce.cuh"

namespace cake_moe::sm90::fc1 {

template <typename C>
__device__ __forceinline__ void consume(const Args& args, Shared<C>& shared, int group, const Schedule<C>& schedule) {
  Position<C> at;
  DeferredPasses<C> deferred(args, shared, group);
  const auto after_stage = [&](int stage) {
    if constexpr (C::kDeferred > 0) deferred.after_stage(stage);
  };
  schedule.for_each(args, [&](const Unit& unit) {
    if (group >= unit.subtiles) return skip_unit(shared, at);
    const int subtile = unit.first_subtile + group;
    const SpreadConstants constants(args, unit.expert);
    float acc[C::kTokens / 2];
    accumulate_rows(shared, at, subtile, __shfl_sync(~0u, unit.rows, 0), after_stage, acc);
    store_unit<C>(args, shared, group, subtile, unit, constants, deferred, acc);
  });
  if constexpr (C::kDeferred > 0) deferred.finish();
}

template <typename C>
__device__ __forceinline__ void init_barriers(Shared<C>& shared) {
  if (threadIdx.x == 0) {
    for (int slot = 0; slot < C::kWeightSlots; ++slot) {
      ptx::mbarrier_init(&shared.weights_arrived[slot], 1);
      ptx::mbarrier_init(&shared.weights_consumed[slot], 4 * C::kConsumers);
    }
    for (int slot = 0; slot < C::kTokenSlots; ++slot) {
      ptx::mbarrier_init(&shared.tokens_arrived[slot], 32 * C::kTokenWarps);
      ptx::mbarrier_init(&shared.tokens_consumed[slot], 4 * C::kConsumers);
    }
    ptx::mbarrier_init_fence();
  }
  __syncthreads();
}

template <typename C>
__global__ void __launch_bounds__(C::kThreads, C::kCtasPerSm)
    cake_moe_sm90_fc1(const Args args, const __grid_constant__ CUtensorMap weights) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared<C>& shared = *reinterpret_cast<Shared<C>*>(memory);
  static_assert(sizeof(Shared<C>) <= max_smem_bytes(C::kCtasPerSm));
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  if (threadIdx.x == 0) ptx::prefetch_tensor_map(&weights);
  init_barriers(shared);
  ptx::grid_dependency_wait();
  ptx::grid_launch_dependents();
  if (blockIdx.x == 0 && threadIdx.x == 0) *args.progress = {};
  const Schedule<C> schedule(__ldcg(args.tile_count) * C::kRowBlocks);
  if (warp >= 4 * C::kConsumers) {
    if constexpr (C::kWide) ptx::lower_registers<C::kProducerRegisters>();
    const int producer = warp - 4 * C::kConsumers;
    if (producer < C::kTokenWarps) {
      produce_tokens(args, shared, producer, schedule);
    } else if (threadIdx.x % 32 == 0) {
      produce_weights(args, weights, shared, schedule);
    }
  } else {
    if constexpr (C::kWide) ptx::raise_registers<C::kConsumerRegisters>();
    consume(args, shared, warp / 4, schedule);
  }
}

}  // namespace cake_moe::sm90::fc1

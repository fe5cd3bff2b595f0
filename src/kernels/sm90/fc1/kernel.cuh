// FC1, SiTU and requantisation. A unit is one token tile by kTileRows stored weight rows; CTAs take units round robin,
// so that neighbouring CTAs share a tile's tokens and an expert's weights in L2.
//
//   producer   --- stage_arrived[slot] --->  consumers   (weights and scales by bulk copies, tokens by cp.async)
//   producer   <-- stage_consumed[slot] ---  consumers   (one arrival a warp, once its MMAs of the slot have ended)
#pragma once

#include "kernels/sm90/fc1/epilogue.cuh"

namespace cake_moe::sm90::fc1 {

template <typename C>
__device__ __forceinline__ void consume(const Args& args, Shared<C>& shared, int group, int units) {
  RingPosition<C::kSlots> at;
  for (int u = blockIdx.x; u < units; u += gridDim.x) {
    const Unit unit = load_unit<C>(args, u);
    float acc[C::kSubtiles][C::kTokens / 2];
    accumulate_rows(shared, at, group, __shfl_sync(~0u, unit.rows, 0), acc);
    store_unit<C>(args, shared, group, unit, acc);
  }
}

template <typename C>
__device__ __forceinline__ void init_barriers(Shared<C>& shared) {
  if (threadIdx.x == 0) {
    for (int slot = 0; slot < C::kSlots; ++slot) {
      ptx::mbarrier_init(&shared.stage_arrived[slot], 1 + 32 * C::kProducerWarps);
      ptx::mbarrier_init(&shared.stage_consumed[slot], 4 * C::kConsumers);
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
  const int units = __ldcg(args.tile_count) * C::kRowBlocks;
  if (warp >= 4 * C::kConsumers) {
    if constexpr (C::kWide) ptx::lower_registers<C::kProducerRegisters>();
    produce(args, weights, shared, warp - 4 * C::kConsumers, units);
  } else {
    if constexpr (C::kWide) ptx::raise_registers<C::kConsumerRegisters>();
    consume(args, shared, warp / 4, units);
  }
}

}  // namespace cake_moe::sm90::fc1

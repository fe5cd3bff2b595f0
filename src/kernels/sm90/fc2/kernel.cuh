// FC2 and finalise. A unit is one token tile by kUnitRows stored weight rows, 64 of them for each consumer warpgroup;
// the ring lets one warpgroup run ahead, so that one stores while another multiplies. A CTA draws runs of a tile's
// units, whose tokens stay in shared memory meanwhile; it begins when an SM is free, while other CTAs of FC1 still run.
//
//   FC1       --- tiles[tile].w == 12 -->  producer    (hq and hs of the tile are complete)
//   producer  --- unit_arrived[slot] --->  consumers   (weights and scales by bulk copies; FC1's tile)
//   producer  <-- unit_consumed[slot] ---  consumers   (one arrival a warp)
#pragma once

#include "kernels/sm90/columns.h"
#include "kernels/sm90/fc2/epilogue.cuh"
#include "kernels/sm90/fc2/finish.cuh"

namespace cake_moe::sm90::fc2 {

// `group`'s rows of the unit in the slot. Every consumer takes the same branch: all work on one tile.
template <typename C, int kN = C::kTokens>
__device__ __forceinline__ void compute_subtile(const Args& args, Shared<C>& shared, int slot, int group,
                                                const int4& tile, float factor, int first_column) {
  constexpr int kNext = narrower(kN, C::kFineColumns);
  if constexpr (kNext > 0) {
    if (tile.z <= kNext) {
      compute_subtile<C, kNext>(args, shared, slot, group, tile, factor, first_column);
      return;
    }
  }
  float acc[kN / 2];
  accumulate<C, kN>(shared.slots[slot], shared.tokens, group, acc);
  if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared.unit_consumed[slot]);
  store_subtile<C, kN>(args, tile, factor, first_column, acc, [](uint32_t* word, uint32_t pair) { *word = pair; });
}

template <typename C>
__device__ __forceinline__ void consume(const Args& args, Shared<C>& shared, int group) {
  RingPosition<C::kSlots> at;
  int current = -1;  // first row of the tile whose tokens are there
  float factor = 0.0f;
  while (true) {
    ptx::mbarrier_wait(&shared.unit_arrived[at.slot], at.phase);
    const int4 work = shared.work[at.slot];
    if (work.w < 0) return;
    if (work.y != current) {
      current = work.y;
      factor = __ldg(&args.alpha[work.x]) * kUnshift;
      load_tokens(args, shared, work);
    }
    compute_subtile<C>(args, shared, at.slot, group, work, factor, work.w * C::kUnitRows + 64 * group);
    at.advance();
  }
}

template <typename C>
__device__ __forceinline__ void init_barriers(Shared<C>& shared) {
  if (threadIdx.x == 0) {
    for (int slot = 0; slot < C::kSlots; ++slot) {
      ptx::mbarrier_init(&shared.unit_arrived[slot], 2);
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
  // The route stage ended before FC1 let this grid start: what it has written may be read while FC1 still runs.
  ptx::grid_launch_dependents();
  if (warp >= 4 * C::kConsumers) {
    if constexpr (C::kProducerWarps == 4) ptx::lower_registers<C::kProducerRegisters>();
    if (threadIdx.x == C::kConsumerThreads) produce(args, shared);
  } else {
    if constexpr (C::kProducerWarps == 4) ptx::raise_registers<C::kConsumerRegisters>();
    if (threadIdx.x == 0) atomicAdd(&args.progress->started, 1);
    consume(args, shared, warp / 4);
    ptx::grid_dependency_wait();  // a later grid that waits for this one finds FC1 at its end, too
    finish(args, shared);
  }
}

}  // namespace cake_moe::sm90::fc2

// FC1, SiTU, requantisation and FC2 in one persistent kernel. CTAs draw units from one counter (weights.cuh); an FC2
// unit waits for its tile's six FC1 units, while its weights are already on their way.
//
//   weight warp --- item_claimed[i] ------>  token warps, MMA warp, epilogue warps
//   weight warp <-- item_done[i] ----------  each of them
//   weight warp, token warps --- stage_arrived[slot] ---> MMA thread   (bulk copies; cp.async of the tokens)
//   weight warp, token warps <-- stage_consumed[slot] --- MMA thread   (commit)
//   MMA thread --- sums_ready[a] ---> epilogue warps                   (commit)
//   MMA thread <-- sums_stored[a] --- epilogue warps
//   epilogue warps --- tile_parts[tile], release ---> token warps of any CTA
#pragma once

#include <cooperative_groups.h>

#include <utility>

#include "kernels/sm100/experts/epilogue.cuh"
#include "kernels/sm100/experts/multiply.cuh"
#include "kernels/sm100/experts/tokens.cuh"
#include "kernels/sm100/experts/weights.cuh"

namespace cake_moe::sm100::experts {

template <typename C>
__device__ __forceinline__ void init_barriers(Shared<C>& shared) {
  for (int slot = 0; slot < C::kSlots; ++slot) {
    ptx::mbarrier_init(&shared.stage_arrived[slot], 1 + C::kTokenThreads);
    ptx::mbarrier_init(&shared.stage_consumed[slot], 1);
  }
  for (int item = 0; item < C::kItems; ++item) {
    ptx::mbarrier_init(&shared.item_claimed[item], 1);
    ptx::mbarrier_init(&shared.item_done[item], C::kTokenWarps + 1 + C::kEpilogueWarps);
  }
  for (int sums = 0; sums < C::kAccumulators; ++sums) {
    ptx::mbarrier_init(&shared.sums_ready[sums], 1);
    ptx::mbarrier_init(&shared.sums_stored[sums], C::kEpilogueWarps);
  }
  ptx::mbarrier_init_fence();
}

template <typename C>
__global__ void __launch_bounds__(C::kThreads, 1)
    cake_moe_sm100_experts(const Args args, const __grid_constant__ CUtensorMap fc1_weights,
                           const __grid_constant__ CUtensorMap fc2_weights) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared<C>& shared = *reinterpret_cast<Shared<C>*>(memory);
  static_assert(sizeof(Shared<C>) <= kSmemOfCta);
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  if (warp == C::kWeightWarp && threadIdx.x % 32 == 0) {
    ptx::prefetch_tensor_map(&fc1_weights);
    ptx::prefetch_tensor_map(&fc2_weights);
    init_barriers(shared);
  }
  if (warp == C::kMmaWarp) {
    ptx::tmem_allocate(&shared.tmem, C::kAllocated);
    ptx::tmem_relinquish();
  }
  if constexpr (C::kQuantize) {
    ptx::grid_launch_dependents();
    if (warp < C::kEpilogueWarps) {
      route::route_in_cta<32 * C::kEpilogueWarps>(args.input.route, shared.routing.tiles, shared.routing.scratch);
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) *args.work_counter = gridDim.x;
  }
  const int token_thread = static_cast<int>(threadIdx.x) - 32 * C::kFirstTokenWarp;
  if (token_thread >= 0) {
    clear_tokens(shared, token_thread);
    ptx::fence_async_shared();
  }
  WeightStream<C> stream = {args, fc1_weights, fc2_weights, shared};
  const bool streams = warp == C::kWeightWarp && threadIdx.x % 32 == 0;
  ptx::tcgen05_fence_before();
  if constexpr (C::kQuantize) {
    const auto grid = cooperative_groups::this_grid();
    auto arrival = grid.barrier_arrive();  // also the CTA's own
    if (streams) {
      stream.tiles = shared.routing.tiles.count;
      stream.take(blockIdx.x);
      stream.load_stages(C::kSlots);
    }
    grid.barrier_wait(std::move(arrival));  // the counters of work and of tiles are set
  } else {
    __syncthreads();
    ptx::grid_dependency_wait();
    ptx::grid_launch_dependents();
    if (streams) {
      stream.tiles = __ldcg(args.tile_count);
      stream.take(stream.draw());
    }
  }
  ptx::tcgen05_fence_after();
  const uint32_t tmem = shared.tmem;
  if (warp == C::kWeightWarp) {
    if (streams) stream.run();
    __syncwarp();
  } else if (warp == C::kMmaWarp) {
    multiply(shared, tmem);
  } else if (warp < C::kEpilogueWarps) {
    if constexpr (C::kQuantize) quantize_input<C>(args);
    store_units(args, shared, tmem, warp);
  } else {
    gather_tokens(args, shared, token_thread);
  }
  ptx::tcgen05_fence_before();
  __syncthreads();
  if (warp == C::kMmaWarp) {
    ptx::tcgen05_fence_after();
    ptx::tmem_free(tmem, C::kAllocated);
  }
}

}  // namespace cake_moe::sm100::experts

// Quantise, route, FC1, SiTU, requantise and FC2 in one cooperative launch, for few tokens.
//
// Every CTA routes for itself and takes a contiguous share of FC1's and of FC2's units. The rings of weights run
// from FC1 into FC2: FC2's first weights arrive while FC1 still computes.
//
//   all CTAs     --- grid barrier ------------->  all CTAs     (input quantised, unit counts of the tiles are zero)
//   weight warp  --- slot_arrived[slot] ------->  its group    (weights and scales by bulk copies)
//   token warp   --- slot_arrived[slot] ------->  its group    (FC1's tokens by cp.async)
//   both         <-- slot_consumed[slot] -------  its group    (one arrival a warp)
//   one group    --- sums_arrived ------------->  the other    (a warp's half of FC1's sums, to its counterpart)
//   FC1 warps    --- tiles[tile].w == 24 ------>  hidden warps of all CTAs   (hq and hs of the tile are complete)
//   hidden warp  --- hidden_arrived[buffer] --->  consumers    (FC2's tokens of one tile)
//   hidden warp  <-- hidden_consumed[buffer] ---  consumers
//
// The waits for other CTAs need all of them resident: the launch is cooperative. The workspace's contents are undefined
// on entry, so the counts are set here, and what orders that before their use is the grid barrier, whose state belongs
// to the driver. The first weights are under way before it.
#pragma once

#include <cooperative_groups.h>

#include <utility>

#include "kernels/sm90/experts/fc1.cuh"
#include "kernels/sm90/experts/fc2.cuh"
#include "kernels/sm90/experts/route.cuh"
#include "kernels/sm90/experts/tokens.cuh"
#include "kernels/sm90/experts/weights.cuh"

namespace cake_moe::sm90::experts {

__device__ __forceinline__ void init_barriers(Shared& shared) {
  for (int group = 0; group < kGroups; ++group) {
    for (int slot = 0; slot < kGroupSlots; ++slot) {
      ptx::mbarrier_init(&shared.slot_arrived[group][slot], 1 + 32);
      ptx::mbarrier_init(&shared.slot_consumed[group][slot], kGroupWarps);
    }
  }
  for (int i = 0; i < 2 * kFc1ItemUnits * 2; ++i) ptx::mbarrier_init(&shared.sums_arrived[0][0][0] + i, 1);
  for (int buffer = 0; buffer < kHiddenTiles; ++buffer) {
    ptx::mbarrier_init(&shared.hidden_arrived[buffer], 1);
    ptx::mbarrier_init(&shared.hidden_consumed[buffer], kConsumerWarps);
  }
  ptx::mbarrier_init_fence();
}

__global__ void __launch_bounds__(kThreads, kCtasPerSm)
    cake_moe_sm90_experts(const Args args, const __grid_constant__ WeightMaps maps) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  ptx::grid_launch_dependents();
  const int consumer = warp - kConsumerWarp;
  if (consumer >= 0 && consumer < kGroupWarps) {
    route(args.route, shared);
  } else if (consumer >= 0 && consumer < kConsumerWarps) {
    quantize_tokens(args.input, args.route.num_tokens, consumer - kGroupWarps, kGroupWarps);
  } else if (threadIdx.x == 32 * kWeightWarp) {
    ptx::prefetch_tensor_map(&maps.unit);
    ptx::prefetch_tensor_map(&maps.item);
    init_barriers(shared);
  }
  const auto grid = cooperative_groups::this_grid();
  auto arrival = grid.barrier_arrive();  // also the CTA's own: the tiles and the barriers of the rings are in place
  const auto wait_for_grid = [&] { grid.barrier_wait(std::move(arrival)); };
  if (warp >= kWeightWarp && warp < kTokenWarp) {
    bring_weights(args, maps, shared, warp - kWeightWarp, wait_for_grid);
    return;
  }
  wait_for_grid();
  if (warp == kHiddenWarp) {
    bring_hidden(args, shared);
  } else if (warp < kWeightWarp) {
    const uint32_t position = consume_fc1(args, shared, consumer);
    consume_fc2(args, shared, consumer, position);
  } else {
    bring_tokens(args, shared, warp - kTokenWarp);
  }
}

}  // namespace cake_moe::sm90::experts

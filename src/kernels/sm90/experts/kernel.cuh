// Quantise, route, FC1, SiTU, requantise and FC2 in one cooperative launch, for few tokens.
//
// Every CTA routes for itself and takes a contiguous share of FC1's and of FC2's units. Its ring of weights runs from
// FC1 into FC2: FC2's first weights arrive while FC1 still computes.
//
//   all CTAs      --- grid barrier --------------->  all CTAs    (input quantised, unit counts of the tiles are zero)
//   weight warp   --- slot_arrived[slot] --------->  one group   (weights and scales by bulk copies)
//   token warp    --- slot_arrived[slot] --------->  one group   (FC1's tokens by bulk copies)
//   both warps    <-- slot_consumed[slot] ---------  one group   (one arrival a warp)
//   FC1 warps     --- tiles[tile].w == 24 -------->  token warps of all CTAs     (hq and hs of the tile are complete)
//   token warp    --- hidden_arrived[buffer] ----->  all consumer warps          (FC2's tokens of one tile)
//   token warp    <-- hidden_consumed[buffer] -----  all consumer warps
//
// The waits for other CTAs need all of them resident: the launch is cooperative. The workspace's contents are undefined
// on entry, so the counts are set here, and what orders that before their use is the grid barrier, whose state belongs
// to the driver.
#pragma once

#include <cooperative_groups.h>

#include <utility>

#include "kernels/sm90/experts/fc1.cuh"
#include "kernels/sm90/experts/fc2.cuh"
#include "kernels/sm90/experts/produce.cuh"

namespace cake_moe::sm90::experts {

__device__ __forceinline__ void init_barriers(Shared& shared) {
  for (int slot = 0; slot < kSlots; ++slot) {
    ptx::mbarrier_init(&shared.slot_arrived[slot], 2);  // the weight thread and the token warp
    ptx::mbarrier_init(&shared.slot_consumed[slot], kGroupWarps);
  }
  for (int buffer = 0; buffer < kHiddenTiles; ++buffer) {
    ptx::mbarrier_init(&shared.hidden_arrived[buffer], 1);
    ptx::mbarrier_init(&shared.hidden_consumed[buffer], kConsumerWarps);
  }
  ptx::mbarrier_init_fence();
}

__global__ void __launch_bounds__(kThreads, kCtasPerSm)
    cake_moe_sm90_experts(const Args args, const __grid_constant__ CUtensorMap fc1_weights) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  const bool weight_thread = threadIdx.x == 32 * kWeightWarp;
  ptx::grid_launch_dependents();
  if (weight_thread) {
    ptx::prefetch_tensor_map(&fc1_weights);
    init_barriers(shared);
  }
  if (warp < kGroupWarps) {
    route(args.route, shared);
  } else if (warp < kConsumerWarps) {
    quantize_tokens(args.quantize, args.route.num_tokens);
  }
  const auto grid = cooperative_groups::this_grid();
  auto arrival = grid.barrier_arrive();  // also the CTA's own: the tiles and the barriers of the ring are in place
  if (weight_thread) stream_weights(args, fc1_weights, shared, 0, kSlots);
  grid.barrier_wait(std::move(arrival));
  if (warp == kWeightWarp) {
    if (weight_thread) stream_weights(args, fc1_weights, shared, kSlots, ~0u);
  } else if (warp == kTokenWarp) {
    ptx::fence_async();  // other threads stored x_half, bulk copies read it
    bring_fc1_tokens(args, shared);
    bring_fc2_tokens(args, shared);
  } else {
    const uint32_t position = consume_fc1(args, shared, warp);
    consume_fc2(args, shared, warp, position);
  }
}

}  // namespace cake_moe::sm90::experts

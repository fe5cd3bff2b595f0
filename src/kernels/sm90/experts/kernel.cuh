// The whole call in one cooperative launch, for few tokens.
//
// Every CTA quantises and routes all of them for itself and takes a contiguous share of FC1's and of FC2's units. The
// rings of weights run from FC1 into FC2: FC2's first weights arrive while FC1 still computes.
//
//   weight and FC1 warps  --- prepared --------------->  FC1 and finalising warps   (routed, quantised)
//   weight warp           --- slot_arrived[slot] ----->  its group    (weights and scales by bulk copies)
//   weight warp           <-- slot_consumed[slot] -----  its group    (one arrival a warp)
//   one group             --- sums_arrived ----------->  the other    (a warp's half of FC1's sums, to its counterpart)
//   FC1 warps             --- packets ---------------->  hidden warps of all CTAs
//   FC2 warps             --- y ---------------------->  finalising warps of all CTAs   (which finalise)
//   hidden warp           --- hidden_arrived[buffer] ->  consumers    (FC2's tokens of one tile)
//   hidden warp           <-- hidden_consumed[buffer] -  consumers
//
// Packets and y say by themselves that they have been written. They are marked first, for the workspace's contents are
// undefined on entry, and what orders that before their use is the grid barrier, whose state belongs to the driver:
// CTAs arrive at their start and wait when the rings' first weights are under way. The waits for other CTAs need all of
// them resident: the launch is cooperative.
#pragma once

#include <cooperative_groups.h>

#include <utility>

#include "kernels/sm90/experts/fc1.cuh"
#include "kernels/sm90/experts/fc2.cuh"
#include "kernels/sm90/experts/finalize.cuh"
#include "kernels/sm90/experts/packets.cuh"
#include "kernels/sm90/experts/route.cuh"
#include "kernels/sm90/experts/tokens.cuh"
#include "kernels/sm90/experts/weights.cuh"

namespace cake_moe::sm90::experts {

__device__ __forceinline__ void init_barriers(Shared& shared) {
  for (int group = 0; group < kGroups; ++group) {
    for (int slot = 0; slot < kGroupSlots; ++slot) {
      ptx::mbarrier_init(&shared.slot_arrived[group][slot], 1);
      ptx::mbarrier_init(&shared.slot_consumed[group][slot], kGroupWarps);
    }
  }
  for (int i = 0; i < 2 * kFc1ItemUnits * 2; ++i) ptx::mbarrier_init(&shared.sums_arrived[0][0][0] + i, 1);
  for (int buffer = 0; buffer < kHiddenTiles; ++buffer) {
    ptx::mbarrier_init(&shared.hidden_arrived[buffer], 1);
    ptx::mbarrier_init(&shared.hidden_consumed[buffer], kConsumerWarps);
  }
  ptx::mbarrier_init(&shared.prepared, kConsumerWarps + kGroups);
  ptx::mbarrier_init(&shared.stored, kConsumerWarps);
  ptx::mbarrier_init_fence();
}

// Arrives when it is made; every thread then waits once. Both are also barriers of the CTA.
class GridBarrier {
 public:
  __device__ GridBarrier() : grid_(cooperative_groups::this_grid()), arrival_(grid_.barrier_arrive()) {}
  __device__ __forceinline__ void wait() { grid_.barrier_wait(std::move(arrival_)); }

 private:
  cooperative_groups::grid_group grid_;
  cooperative_groups::grid_group::arrival_token arrival_;
};

__device__ __forceinline__ void arrive_prepared(Shared& shared) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared.prepared);
}

__global__ void __launch_bounds__(kThreads, kCtasPerSm)
    cake_moe_sm90_experts(const Args args, const __grid_constant__ WeightMaps maps) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), consumer = warp - kConsumerWarp;
  const bool is_consumer = warp >= kConsumerWarp && warp < kWeightWarp;
  const bool is_weight = warp >= kWeightWarp && warp < kFinalizeWarp;
  const int32_t id = is_weight ? load_id(args.route) : kNoRoute;  // requested before anything waits
  if (threadIdx.x == 32 * kWeightWarp) {
    for (const CUtensorMap& map : maps.of_units) ptx::prefetch_tensor_map(&map);
    init_barriers(shared);
  }
  mark_unwritten(args);
  GridBarrier grid;
  const auto wait_for_grid = [&grid] { grid.wait(); };
  if (is_weight) {
    route_tokens(args.route, shared, id);
    arrive_prepared(shared);
    bring_weights(args, maps, shared, warp - kWeightWarp, wait_for_grid);
    return;
  }
  if (is_consumer) {
    quantize_tokens(args.input, shared, args.route.num_tokens, consumer);
    arrive_prepared(shared);
  }
  if (warp != kHiddenWarp) ptx::mbarrier_wait(&shared.prepared, 0);
  if (threadIdx.x == 32 * kFinalizeWarp) touch_fc2(args, shared);
  wait_for_grid();
  if (warp == kHiddenWarp) {
    bring_hidden(args, shared);
  } else if (is_consumer) {
    const uint32_t position = consume_fc1(args, shared, consumer);
    consume_fc2(args, shared, consumer, position);
  } else {
    write_expert_offsets(args.route, shared);
    finalize_tokens(args, shared, warp - kFinalizeWarp);
  }
}

}  // namespace cake_moe::sm90::experts

// How a warpgroup of FC2 brings its weights: one of its threads requests the subtile that goes into a slot as soon as
// the slot has been read.
#pragma once

#include <cstdint>

#include "kernels/ptx/copy.cuh"
#include "kernels/ptx/sync.cuh"
#include "kernels/sm90/fc2/args.h"
#include "kernels/sm90/fc2/schedule.cuh"
#include "kernels/sm90/fc2/shared.cuh"

namespace cake_moe::sm90::fc2 {

// Index in the CTA's sequence of the unit of a warpgroup's `position`-th subtile: the groups take units in turn.
template <typename C>
__device__ __forceinline__ int unit_index(int group, int position) {
  return group + position / kUnitSubtiles * C::kGroups;
}

// Whether this thread does so: in each group one of another quarter of the SM.
__device__ __forceinline__ bool feeds(int group) { return threadIdx.x % 128 == 32 * group; }

template <typename C>
class Feeder {
 public:
  __device__ __forceinline__ Feeder(const Args& args, Shared<C>& shared, const Schedule<C>& schedule, int group)
      : args_(args), shared_(shared), schedule_(schedule), group_(group) {
    if (!feeds(group)) return;
    walk().start();
    look_up(0);
    for (int position = 0; position < C::kSlots; ++position) request(position);
  }

  // The group has read the subtile at that position.
  __device__ __forceinline__ void refill(int position) {
    ptx::named_barrier(1 + group_, 128);
    if (feeds(group_)) request(position + C::kSlots);
    __syncwarp();
  }

 private:
  // A subtile's weights and, with those of a unit's first, the unit's scales. In order of the positions.
  __device__ __forceinline__ void request(int position) {
    const int index = unit_index<C>(group_, position), subtile = position % kUnitSubtiles;
    if (index >= walk().end) return;
    const int64_t unit = int64_t{expert_} * C::kRowBlocks + walk().row_block(index);
    const uint64_t policy = C::kWide ? ptx::policy_evict_last() : ptx::policy_evict_first();
    const RingPlace<C> place(position);
    auto& ring = shared_.rings[group_];
    uint64_t* arrived = &shared_.arrived[group_][place.slot];
    ptx::mbarrier_arrive_expect(arrived, C::kSubtileBytes + (subtile == 0 ? C::kScaleBytes : 0));
    ptx::bulk_copy(ring.weights[place.slot], args_.weights + (unit * kUnitSubtiles + subtile) * C::kSubtileBytes,
                   C::kSubtileBytes, arrived, policy);
    if (subtile == 0) {
      ptx::bulk_copy(ring.scales[place.scale_slot], args_.scales + unit * C::kScaleBytes, C::kScaleBytes, arrived,
                     policy);
    }
    look_up(position + 1);
  }

  // Ahead of the request, which then need not wait for the expert.
  __device__ __forceinline__ void look_up(int position) {
    const int index = unit_index<C>(group_, position);
    while (index >= walk().end) {
      if (!walk().next(schedule_)) return;
    }
    expert_ = __ldcg(&args_.tiles[walk().tile]).x;
  }

  __device__ __forceinline__ TileWalk<C>& walk() { return shared_.walks[group_]; }

  const Args& args_;
  Shared<C>& shared_;
  const Schedule<C>& schedule_;
  const int group_;
  int expert_ = 0;
};

}  // namespace cake_moe::sm90::fc2

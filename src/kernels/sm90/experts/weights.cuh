// The warps that bring weights and scales into the rings.
#pragma once

#include <cstdint>

#include "kernels/ptx/copy.cuh"
#include "kernels/sm90/experts/args.h"
#include "kernels/sm90/experts/shared.cuh"

namespace cake_moe::sm90::experts {

struct WeightPolicies {
  uint64_t weights = ptx::policy_evict_first();
  uint64_t scales = ptx::policy_evict_last();  // neighbouring CTAs may share a block's scales
};

// FC1's weights in boxes of 1, 2, .. units.
struct WeightMaps {
  CUtensorMap of_units[kFc1ItemUnits];
};

__device__ __forceinline__ void copy_fc1_weights(const Args& args, const WeightMaps& maps, Fc1Slot& slot,
                                                 uint64_t* arrived, const Item& item, int expert, int first_k,
                                                 const WeightPolicies& policies) {
  const int first_block = item.unit / 4, blocks = (item.unit + item.units - 1) / 4 - first_block + 1;
  const int row = expert * kFc1Rows + item.unit * kFc1UnitRows;
  ptx::mbarrier_arrive_expect(arrived, item.units * kFc1BoxBytes + blocks * kFc1ScaleBytes);
  ptx::tensor_copy_2d(slot.weights, &maps.of_units[item.units - 1], first_k / 2, row, arrived, policies.weights);
  const uint8_t* scales = args.fc1.scales + int64_t{expert} * (kFc1Rows * kFc1Groups) +
                          first_block * (128 * kFc1Groups) + first_k / kStageK * kFc1ScaleBytes;
  ptx::bulk_copy(slot.scales, scales, kFc1ScaleBytes, arrived, policies.scales);
  if (blocks > 1) {
    ptx::bulk_copy(slot.scales + kFc1ScaleBytes, scales + 128 * kFc1Groups, kFc1ScaleBytes, arrived, policies.scales);
  }
}

__device__ __forceinline__ void copy_fc2_units(const Args& args, Fc2Slot& slot, uint64_t* arrived, const Item& item,
                                               int expert, const WeightPolicies& policies) {
  const int in_block = item.unit % kFc2SlotUnits, bytes = item.units * kFc2UnitBytes;
  ptx::mbarrier_arrive_expect(arrived, bytes + Fc2::kScaleBytes);
  ptx::bulk_copy(slot.weights + in_block * kFc2UnitBytes,
                 args.fc2.weights + (int64_t{expert} * kFc2Units + item.unit) * kFc2UnitBytes, bytes, arrived,
                 policies.weights);
  ptx::bulk_copy(slot.scales,
                 args.fc2.scales + (int64_t{expert} * kFc2Units + item.unit) / kFc2SlotUnits * Fc2::kScaleBytes,
                 Fc2::kScaleBytes, arrived, policies.scales);
}

// A line of the first and of the last unit of the CTA's share of FC2, so that their pages are in the TLBs when the ring
// comes to them. By one thread.
__device__ __forceinline__ void touch_fc2(const Args& args, const Shared& shared) {
  constexpr int kLineBytes = 128;
  const Share share = shared.fc2;
  if (share.begin == share.end) return;
  for (const int at : {share.begin, share.end - 1}) {
    const int64_t unit = int64_t{Tile(shared.tiles[at / kFc2Units]).expert()} * kFc2Units + at % kFc2Units;
    ptx::bulk_prefetch(args.fc2.weights + unit * kFc2UnitBytes, kLineBytes);
    ptx::bulk_prefetch(args.fc2.scales + unit / kFc2SlotUnits * Fc2::kScaleBytes, kLineBytes);
  }
}

// By one warp. `wait_for_grid` is called once, when the first weights of the ring are under way.
template <typename Wait>
__device__ __forceinline__ void bring_weights(const Args& args, const WeightMaps& maps, Shared& shared, int group,
                                              const Wait& wait_for_grid) {
  const bool first_lane = threadIdx.x % 32 == 0;
  const WeightPolicies policies;
  uint32_t position = 0;
  const auto fill = [&](const auto& copy) {
    if (position == kGroupSlots) wait_for_grid();
    const RingSlot ring(position++);
    ptx::mbarrier_wait(&shared.slot_consumed[group][ring.slot], ring.phase ^ 1);
    uint64_t* arrived = &shared.slot_arrived[group][ring.slot];
    if (first_lane) copy(shared.slots[group][ring.slot], arrived);
    __syncwarp();
  };
  for_each_fc1_item(shared.fc1, [&](const Item& item) {
    const int expert = Tile(shared.tiles[item.tile]).expert();
#pragma unroll 1
    for (int stage = 0; stage < kStages; ++stage) {
      fill([&](Slot& slot, uint64_t* arrived) {
        copy_fc1_weights(args, maps, slot.fc1, arrived, item, expert, group * kSliceK + stage * kStageK, policies);
      });
    }
  });
  for_each_fc2_slot(shared.fc2, group, [&](const Item& item) {
    const int expert = Tile(shared.tiles[item.tile]).expert();
    fill([&](Slot& slot, uint64_t* arrived) { copy_fc2_units(args, slot.fc2, arrived, item, expert, policies); });
  });
  if (position <= kGroupSlots) wait_for_grid();
}

}  // namespace cake_moe::sm90::experts

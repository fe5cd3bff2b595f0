// The weight warp: claims units and streams their weights and block scales.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/ptx/copy.cuh"
#include "kernels/sm100/experts/shared.cuh"

namespace cake_moe::sm100::experts {

// Units are drawn in order from one counter, FC1's before FC2's: whoever waits for a tile's FC1 waits for units that
// running CTAs hold, however few CTAs are resident.
template <typename C>
__device__ __forceinline__ Item describe_item(const Args& args, const Shared<C>& shared, uint32_t index,
                                              uint32_t tiles) {
  const uint32_t fc1_units = tiles * Fc1::kRowBlocks;
  const bool fc1 = index < fc1_units;
  const uint32_t unit = fc1 ? index : index - fc1_units;
  const uint32_t row_blocks = fc1 ? Fc1::kRowBlocks : Fc2::kRowBlocks;
  const uint32_t tile = unit / row_blocks;
  if (tile >= tiles) return {Kind::kEnd};
  Item item = {fc1 ? Kind::kFc1 : Kind::kFc2, static_cast<int>(tile)};
  item.row_block = static_cast<int>(unit % row_blocks);
  if constexpr (C::kQuantize) {
    const route::CtaTile entry(shared.routing.tiles.tiles[tile]);
    item.expert = entry.expert(), item.first_row = entry.first_row(), item.rows = entry.rows();
  } else {
    const int4& entry = args.tiles[tile];
    item.expert = __ldcg(&entry.x), item.first_row = __ldcg(&entry.y), item.rows = __ldcg(&entry.z);
  }
  return item;
}

// State of the weight thread.
template <typename C>
struct WeightStream {
  const Args& args;
  const CUtensorMap& fc1_map;
  const CUtensorMap& fc2_map;
  Shared<C>& shared;
  uint32_t tiles;
  uint64_t policy = C::kTokens <= 64 ? ptx::policy_evict_first() : ptx::policy_evict_last();
  RingPosition<C::kSlots> at{};
  RingPosition<C::kItems> claim{};
  Item item{};
  int stage = 0;

  __device__ __forceinline__ bool active() const { return item.kind != Kind::kEnd; }
  __device__ __forceinline__ int stages() const {
    return item.kind == Kind::kFc1 ? Fc1::kStages : item.kind == Kind::kFc2 ? Fc2::kStages : 0;
  }

  // Makes a unit the current one and tells the other roles.
  __device__ __forceinline__ void take(uint32_t index) {
    item = describe_item<C>(args, shared, index, tiles);
    stage = 0;
    ptx::mbarrier_wait(&shared.item_done[claim.slot], claim.phase ^ 1);
    shared.items[claim.slot] = item;
    ptx::mbarrier_arrive(&shared.item_claimed[claim.slot]);
    claim.advance();
  }

  template <typename G>
  __device__ __forceinline__ void load(const CUtensorMap& map, const uint8_t* scales) {
    const int block = item.expert * G::kRowBlocks + item.row_block;
    auto& slot = shared.slots[at.slot];
    uint64_t* arrived = &shared.stage_arrived[at.slot];
    ptx::mbarrier_wait(&shared.stage_consumed[at.slot], at.phase ^ 1);
    ptx::mbarrier_arrive_expect(arrived, G::kWeightBytes + G::kScaleBytes);
#pragma unroll
    for (int chunk = 0; chunk < G::kChunks; ++chunk) {
      ptx::tensor_copy_2d(slot.weights + chunk * kMmaRows * G::kChunkBytes, &map,
                          (stage * G::kChunks + chunk) * G::kChunkBytes, block * kMmaRows, arrived, policy);
    }
    ptx::bulk_copy(slot.weight_scales, scales + int64_t{block} * (kMmaRows * G::kGroups) + stage * G::kScaleBytes,
                   G::kScaleBytes, arrived, policy);
    at.advance();
    ++stage;
  }
  __device__ __forceinline__ void load_stages(int end) {
    while (stage < min(end, stages())) {
      if (item.kind == Kind::kFc1) {
        load<Fc1>(fc1_map, args.fc1.scales);
      } else {
        load<Fc2>(fc2_map, args.fc2.scales);
      }
    }
  }

  __device__ __forceinline__ uint32_t draw() { return atomicAdd(args.work_counter, 1u); }

  // The current unit and all that can be drawn. The next one is drawn while the current one is loaded.
  __device__ __forceinline__ void run() {
    while (active()) {
      const uint32_t next = draw();
      load_stages(stages());
      take(next);
    }
  }
};

}  // namespace cake_moe::sm100::experts

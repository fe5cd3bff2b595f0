// FC2 by the consumer warps: the groups take slots in turn, a warp has 16 rows of a slot over all of K.
#pragma once

#include <cstdint>

#include "kernels/sm90/experts/args.h"
#include "kernels/sm90/experts/shared.cuh"
#include "kernels/sm90/fc2/epilogue.cuh"

namespace cake_moe::sm90::experts {

using HiddenTile = Chunk[kTokens][kFc2Chunks];

template <int kMostPairs>
__device__ __forceinline__ void multiply_fc2_unit(const Shared& shared, const Fc2Slot& slot, const HiddenTile& hidden,
                                                  int in_slot, int rows, PairSums (&sums)[kPairs]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, t = lane % 4;
  const int row = kFc2UnitRows * in_slot + fc2::stored_row(warp, lane / 4);
  const uint8_t* weights = slot.weights + row * kFc2RowBytes + t * 16;
  const uint8_t* scales = slot.scales + t % 2 * 512 + row % 32 * 16 + row / 32 * 4;
#pragma unroll(kMostPairs == 1 ? kFc2Chunks : 1)
  for (int i = 0; i < kFc2Chunks; ++i) {
    const WeightBytes bytes(*reinterpret_cast<const uint4*>(weights + 64 * i),
                            *reinterpret_cast<const uint4*>(weights + 8 * kFc2RowBytes + 64 * i));
    WeightScales chunk_scales;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t codes = *reinterpret_cast<const uint32_t*>(scales + 8 * 16 * half + 1024 * i);
      chunk_scales.set(half, 0, static_cast<uint16_t>(codes));
      chunk_scales.set(half, 1, static_cast<uint16_t>(codes >> 16));
    }
#pragma unroll
    for (int pair = 0; pair < kMostPairs; ++pair) {
      if (2 * pair >= rows && pair > 0) break;
      const int second = min(2 * pair + 1, rows - 1);  // a lone last token stands for both
      multiply_chunk(sums[pair], bytes, chunk_scales, PairReader(hidden[2 * pair], hidden[second], shared.zeros), i);
    }
  }
}

// The tiles of FC2's tokens in shared memory, in the order in which the hidden warp brings them.
class HiddenTiles {
 public:
  __device__ explicit HiddenTiles(Shared& shared) : shared_(shared) {}

  // Gives back every earlier tile and waits for this one. By whole warps.
  __device__ __forceinline__ const HiddenTile& get(int tile) {
    const int index = tile - shared_.fc2.begin / kFc2Units;
    while (current_ < index) {
      if (current_ >= 0) release();
      ++current_;
      ptx::mbarrier_wait(&shared_.hidden_arrived[current_ % kHiddenTiles], current_ / kHiddenTiles & 1);
    }
    return shared_.hidden[current_ % kHiddenTiles];
  }

 private:
  __device__ __forceinline__ void release() {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared_.hidden_consumed[current_ % kHiddenTiles]);
  }

  Shared& shared_;
  int current_ = -1;
};

// `position` is that of the group's first slot of FC2.
__device__ __forceinline__ void consume_fc2(const Args& args, Shared& shared, int warp, uint32_t position) {
  const int group = warp / kGroupWarps, unit = warp % kGroupWarps / 4;
  HiddenTiles tiles(shared);
  for_each_fc2_slot(shared.fc2, group, [&](const Item& item) {
    const RingSlot ring(position++);
    const HiddenTile& hidden = tiles.get(item.tile);
    const Tile tile(shared.tiles[item.tile]);
    const float factor = __ldg(&args.fc2.alpha[tile.expert()]) * kUnshift;
    const int in_slot = item.unit % kFc2SlotUnits + unit;
    ptx::mbarrier_wait(&shared.slot_arrived[group][ring.slot], ring.phase);
    PairSums sums[kPairs] = {};
    const bool active = unit < item.units;
    if (active) {
      const Fc2Slot& slot = shared.slots[group][ring.slot].fc2;
      if (tile.rows() <= 2) {
        multiply_fc2_unit<1>(shared, slot, hidden, in_slot, tile.rows(), sums);
      } else {
        multiply_fc2_unit<kPairs>(shared, slot, hidden, in_slot, tile.rows(), sums);
      }
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared.slot_consumed[group][ring.slot]);
    if (!active) return true;
    float acc[4] = {};
    gather_tokens(sums, tile.rows(), acc);
    fc2::store_subtile<fc2::Config<kTokens>>(args.fc2, make_int4(tile.expert(), tile.first_row(), tile.rows(), 0),
                                             factor, (item.unit + unit) * kFc2UnitRows, acc);
    return true;
  });
}

}  // namespace cake_moe::sm90::experts

// FC2 by the consumer warps: the groups take slots in turn, a warp has 16 rows of a slot over all of K.
#pragma once

#include <cstdint>

#include "kernels/ptx/relaxed.cuh"
#include "kernels/sm90/experts/args.h"
#include "kernels/sm90/experts/shared.cuh"
#include "kernels/sm90/fc2/epilogue.cuh"

namespace cake_moe::sm90::experts {

// The tiles of FC2's tokens in shared memory, in the order in which the hidden warp brings them.
class HiddenTiles {
 public:
  __device__ explicit HiddenTiles(Shared& shared) : shared_(shared) {}

  // Gives back every earlier tile and waits for this one. By whole warps.
  __device__ __forceinline__ const uint8_t* get(int tile) {
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
    const uint8_t* hidden = tiles.get(item.tile);
    const Tile tile(shared.tiles[item.tile]);
    const float factor = __ldg(&args.fc2.alpha[tile.expert()]) * kUnshift;
    const bool active = unit < item.units;
    ptx::mbarrier_wait(&shared.slot_arrived[group][ring.slot], ring.phase);
    float acc[4];
    if (active) {
      fc2::accumulate<Fc2, kTokens>(shared.slots[group][ring.slot].fc2, hidden, item.unit % kFc2SlotUnits + unit, acc);
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared.slot_consumed[group][ring.slot]);
    if (active) {
      fc2::store_subtile<Fc2, kTokens>(args.fc2, make_int4(tile.expert(), tile.first_row(), tile.rows(), 0), factor,
                                       (item.unit + unit) * kFc2UnitRows, acc,
                                       [](uint32_t* word, uint32_t pair) { ptx::store_relaxed(word, pair); });
    }
  });
  if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared.stored);
}

}  // namespace cake_moe::sm90::experts

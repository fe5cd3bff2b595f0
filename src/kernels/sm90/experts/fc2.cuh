// FC2 by the consumer warps: the groups take slots in turn, a warp has 16 rows of a slot over all of K.
#pragma once

#include <cstdint>

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
#pragma unroll 1
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

// A warp's sixteen rows of a slot's unit, in the K order and the order of rows of fc2/mainloop.cuh, a pair of segments
// at a time: the first pair is dequantised before the tokens are there.
class Fc2Rows {
 public:
  using Fragments = uint32_t[2][kSteps][4];

  __device__ Fc2Rows(const Fc2Slot& slot, int unit) {
    const int lane = threadIdx.x % 32, t = lane % 4;
    const int row = kFc2UnitRows * unit + fc2::stored_row(threadIdx.x / 32 % 4, lane / 4);
    weights_ = slot.weights + row * kFc2RowBytes + t * 16;
    scales_ = slot.scales + t / 2 * 512 + row % 32 * 16 + row / 32 * 4 + t % 2 * 2;
  }
  __device__ __forceinline__ void dequantize(int pair, Fragments& a) const {
    const uint4 low = *reinterpret_cast<const uint4*>(weights_ + 64 * pair);
    const uint4 high = *reinterpret_cast<const uint4*>(weights_ + 8 * kFc2RowBytes + 64 * pair);
    const __half2 low_scales = shifted_scales(*reinterpret_cast<const uint16_t*>(scales_ + 1024 * pair));
    const __half2 high_scales = shifted_scales(*reinterpret_cast<const uint16_t*>(scales_ + 8 * 16 + 1024 * pair));
    dequantize_segment(low.x, low.y, __low2half2(low_scales), high.x, high.y, __low2half2(high_scales), a[0]);
    dequantize_segment(low.z, low.w, __high2half2(low_scales), high.z, high.w, __high2half2(high_scales), a[1]);
  }

 private:
  const uint8_t* weights_;
  const uint8_t* scales_;
};
static_assert(Fc2::kUnitRows == 128, "a slot's scales are one block of 128 rows");

__device__ __forceinline__ void multiply_fc2_pair(int pair, const Fc2Rows::Fragments& a, const uint8_t* hidden,
                                                  float (&acc)[4]) {
  const uint32_t tokens = ptx::shared_address(hidden) + 2 * pair * Fc2::kSegmentBytes;
  multiply_segment<kTokens>(acc, a[0], tokens);
  multiply_segment<kTokens>(acc, a[1], tokens + Fc2::kSegmentBytes);
}

// `position` is that of the group's first slot of FC2.
__device__ __forceinline__ void consume_fc2(const Args& args, Shared& shared, int warp, uint32_t position) {
  const int group = warp / kGroupWarps, unit = warp % kGroupWarps / 4;
  HiddenTiles tiles(shared);
  for_each_fc2_slot(shared.fc2, group, [&](const Item& item) {
    const RingSlot ring(position++);
    const Tile tile(shared.tiles[item.tile]);
    float alpha = __ldg(&args.fc2.alpha[tile.expert()]);  // requested here, ahead of the waits
    ptx::pin(alpha);
    const bool active = unit < item.units;
    ptx::mbarrier_wait(&shared.slot_arrived[group][ring.slot], ring.phase);
    const Fc2Rows rows(shared.slots[group][ring.slot].fc2, item.unit % kFc2SlotUnits + unit);
    Fc2Rows::Fragments a;
    if (active) rows.dequantize(0, a);
    const uint8_t* hidden = tiles.get(item.tile);
    float acc[4] = {};
    if (active) {
      multiply_fc2_pair(0, a, hidden, acc);
#pragma unroll
      for (int pair = 1; pair < Fc2::kSegments / 2; ++pair) {
        rows.dequantize(pair, a);
        multiply_fc2_pair(pair, a, hidden, acc);
      }
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared.slot_consumed[group][ring.slot]);
    if (active) {
      fc2::store_subtile<Fc2>(args.fc2, make_int4(tile.expert(), tile.first_row(), tile.rows(), 0), alpha * kUnshift,
                              (item.unit + unit) * kFc2UnitRows, acc);
    }
  });
}

}  // namespace cake_moe::sm90::experts

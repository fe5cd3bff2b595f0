// FC2 by the consumer warps: the groups take slots in turn, a warp has 16 rows of a slot over all of K.
#pragma once

#include <cstdint>

#include "kernels/sm90/experts/shared.cuh"
#include "kernels/sm90/experts/tokens.cuh"
#include "kernels/sm90/fc2/epilogue.cuh"

namespace cake_moe::sm90::experts {

__device__ __forceinline__ void multiply_fc2_unit(const Fc2Slot& slot, const uint8_t* hidden, int in_slot, int token,
                                                  float (&acc)[4]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, t = lane % 4;
  const int row = kFc2UnitRows * in_slot + fc2::stored_row(warp, lane / 4);
  const uint8_t* weights = slot.weights + row * kFc2RowBytes + t * 16;
  const uint8_t* scales = slot.scales + t / 2 * 512 + row % 32 * 16 + row / 32 * 4 + t % 2 * 2;
  const uint8_t* tokens = hidden + token * kFc2TokenPitch + t * kChunkBytes;
#pragma unroll
  for (int i = 0; i < kFc2Segments / 2; ++i) {
    const uint4 low = *reinterpret_cast<const uint4*>(weights + 64 * i);
    const uint4 high = *reinterpret_cast<const uint4*>(weights + 8 * kFc2RowBytes + 64 * i);
    const __half2 low_scales = shifted_scales(*reinterpret_cast<const uint16_t*>(scales + 1024 * i));
    const __half2 high_scales = shifted_scales(*reinterpret_cast<const uint16_t*>(scales + 8 * 16 + 1024 * i));
    uint32_t a[kSteps][4];
    dequantize_segment(low.x, low.y, __low2half2(low_scales), high.x, high.y, __low2half2(high_scales), a);
    multiply_lane_order(acc, a, tokens + 2 * i * kSegmentBytes);
    dequantize_segment(low.z, low.w, __high2half2(low_scales), high.z, high.w, __high2half2(high_scales), a);
    multiply_lane_order(acc, a, tokens + (2 * i + 1) * kSegmentBytes);
  }
}

// The tiles of FC2's tokens in shared memory, in the order in which the token warp brings them.
class HiddenTiles {
 public:
  __device__ HiddenTiles(Shared& shared, int first_tile) : shared_(shared), first_(first_tile) {}

  // Gives back every earlier tile and waits for this one. By whole warps.
  __device__ __forceinline__ const uint8_t* get(int tile) {
    for (; current_ < tile - first_; ) {
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
  int first_, current_ = -1;
};

// `position` is that of the first of FC2's slots.
__device__ __forceinline__ void consume_fc2(const Args& args, Shared& shared, int warp, uint32_t position) {
  const Share share(shared.tile_count, kFc2Units);
  const int group = warp / kGroupWarps, unit = warp % kGroupWarps / 4;
  HiddenTiles tiles(shared, share.begin / kFc2Units);
  int turn = 0;
  for_each_fc2_slot(share, [&](const Item& item) {
    const RingSlot ring(position++);
    if (turn++ % kGroups != group) return;
    const uint8_t* hidden = tiles.get(item.tile);
    const Tile tile(shared.tiles[item.tile]);
    const float factor = __ldg(&args.fc2.alpha[tile.expert()]) * kUnshift;
    const int in_slot = item.unit % kFc2SlotUnits + unit;
    ptx::mbarrier_wait(&shared.slot_arrived[ring.slot], ring.phase);
    float acc[4] = {};
    const bool active = unit < item.units;
    if (active) multiply_fc2_unit(shared.slots[ring.slot].fc2, hidden, in_slot, lane_token(tile.rows()), acc);
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared.slot_consumed[ring.slot]);
    if (!active) return;
    fc2::store_subtile<fc2::Config<kTokens>>(args.fc2, make_int4(tile.expert(), tile.first_row(), tile.rows(), 0),
                                             factor, (item.unit + unit) * kFc2UnitRows, acc);
  });
}

}  // namespace cake_moe::sm90::experts

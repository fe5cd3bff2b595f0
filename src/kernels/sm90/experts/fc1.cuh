// FC1 by the consumer warps. A warp has 16 rows of an item over its group's half of K: a half (even or odd features) of
// one unit. The two warps with the same rows add their sums, the two that then hold a unit's features requantise.
#pragma once

#include <cstdint>

#include "kernels/ptx/sync.cuh"
#include "kernels/sm90/experts/tokens.cuh"
#include "kernels/sm90/experts/shared.cuh"
#include "kernels/sm90/fc1/epilogue.cuh"

namespace cake_moe::sm90::experts {

// Named barriers: one a pair of warps with the same rows, one a pair of halves of a unit.
inline constexpr int kSumBarrier = 1;
inline constexpr int kBlockBarrier = kSumBarrier + 2 * kFc1ItemUnits;

struct Fc1Warp {
  int group, unit, half;  // unit of the item, half of its rows
  int finished = 0;       // items

  __device__ explicit Fc1Warp(int warp) : group(warp / kGroupWarps), unit(warp % kGroupWarps / 2), half(warp % 2) {}
};

__device__ __forceinline__ void multiply_fc1_stage(const Fc1Slot& slot, const Fc1Warp& warp, const Item& item,
                                                   int token, float (&acc)[4]) {
  const int lane = threadIdx.x % 32, r = lane / 4, t = lane % 4;
  const int unit = item.unit + warp.unit;
  const uint8_t* weights = slot.weights + (kFc1UnitRows * warp.unit + 16 * warp.half + r) * kSwizzleRowBytes;
  const fc1::StageScales scales(slot.scales + (unit / 4 - item.unit / 4) * kFc1ScaleBytes + t * 512 +
                                (16 * warp.half + r) * 16 + unit % 4 * 4);
  const uint8_t* tokens = slot.tokens + token * kFc1TokenPitch + t * kChunkBytes;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint8_t* piece = weights + ((2 * t + i) ^ r) * 16;
    const fc1::Pieces pieces = {*reinterpret_cast<const uint4*>(piece),
                                *reinterpret_cast<const uint4*>(piece + kSwizzleAtomBytes)};
#pragma unroll
    for (int segment = 2 * i; segment < 2 * i + 2; ++segment) {
      uint32_t a[kSteps][4];
      fc1::dequantize_pieces(pieces, scales, segment, a);
      multiply_lane_order(acc, a, tokens + segment * kSegmentBytes);
    }
  }
}

// Requantises the sixteen features of a unit for up to eight rows, four lanes a row; by one warp. `values` holds the
// activated values of both halves as their lanes left them.
__device__ __forceinline__ void store_block(const Args& args, const float (&values)[2][4 * 32], const Tile& tile,
                                            int unit, float encode) {
  const int lane = threadIdx.x % 32, token = lane / 4, part = lane % 4;
  const int at = 32 * (token % 2) + token / 2 + 8 * part;  // features 4 * part, + 1 of the lane row 2 * part
  const float v[] = {values[0][at], values[1][at], values[0][at + 4], values[1][at + 4]};
  const int64_t row = tile.first_row() + token;
  fc1::requantize_block(v, part, encode, token < tile.rows(), args.fc1.hq + row * kFc2RowBytes + 8 * unit,
                        args.fc1.hs + row * kFc2Groups + unit);
}

__device__ __forceinline__ void finish_fc1_item(const Args& args, Shared& shared, Fc1Warp& warp, const Item& item,
                                                const fc1::Activation& act, float (&acc)[4]) {
  const int lane = threadIdx.x % 32, parity = warp.finished++ % 2;
  auto& values = shared.exchange[parity][warp.unit];
  float* own = values[warp.half] + lane;
  const int sum_barrier = kSumBarrier + 2 * warp.unit + warp.half;
  if (warp.group != parity) {  // the groups take turns, so that neither falls behind
#pragma unroll
    for (int j = 0; j < 4; ++j) own[32 * j] = acc[j];
    ptx::named_barrier_arrive(sum_barrier, 64);
    return;
  }
  ptx::named_barrier(sum_barrier, 64);  // the other half's sums are in place
#pragma unroll
  for (int j = 0; j < 4; ++j) acc[j] = add_rn(acc[j], own[32 * j]);
  bool regular = act.beta.regular() && act.linear_beta.regular();
  const float v[] = {act(acc[2], acc[0], &regular), act(acc[3], acc[1], &regular)};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    own[32 * i] = regular ? v[i]
                          : situ(acc[2 + i] * kUnshift, acc[i] * kUnshift, act.alpha, act.beta.d, act.linear_beta.d);
  }
  ptx::named_barrier(kBlockBarrier + warp.unit, 64);  // all sixteen features are in place
  if (warp.half != 0) return;
  store_block(args, values, Tile(shared.tiles[item.tile]), item.unit + warp.unit, act.encode);
  __syncwarp();
  if (lane == 0) ptx::add_release(&args.route.tiles[item.tile].w, 1);
}

// Returns the position after FC1's slots.
__device__ __forceinline__ uint32_t consume_fc1(const Args& args, Shared& shared, int warp_index) {
  Fc1Warp warp(warp_index);
  uint32_t position = 0;
  for_each_fc1_item(Share(shared.tile_count, kFc1Units), [&](const Item& item) {
    const bool active = warp.unit < item.units;
    const Tile tile(shared.tiles[item.tile]);
    const int token = lane_token(tile.rows());
    const fc1::Activation act(args.fc1, tile.expert());  // read ahead of its use
    float acc[4] = {};
#pragma unroll 1
    for (int stage = 0; stage < kStages; ++stage) {
      const RingSlot ring(position + kGroups * stage + warp.group);
      ptx::mbarrier_wait(&shared.slot_arrived[ring.slot], ring.phase);
      if (active) multiply_fc1_stage(shared.slots[ring.slot].fc1, warp, item, token, acc);
      __syncwarp();
      if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared.slot_consumed[ring.slot]);
    }
    position += kFc1ItemSlots;
    if (active) finish_fc1_item(args, shared, warp, item, act, acc);
  });
  return position;
}

}  // namespace cake_moe::sm90::experts

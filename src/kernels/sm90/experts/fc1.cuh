// FC1 by the consumer warps. A warp has 16 rows of an item over its group's half of K: a half (even or odd features) of
// one unit. The two warps with the same rows add their sums, the two that then hold a unit's features requantise.
#pragma once

#include <cstdint>

#include "kernels/ptx/pin.cuh"
#include "kernels/ptx/sync.cuh"
#include "kernels/sm90/experts/args.h"
#include "kernels/sm90/experts/packets.cuh"
#include "kernels/sm90/experts/shared.cuh"
#include "kernels/sm90/fc1/activation.cuh"
#include "kernels/sm90/fc1/mainloop.cuh"
#include "kernels/sm90/fc1/requantize.cuh"

namespace cake_moe::sm90::experts {

inline constexpr int kBlockBarrier = 1;  // the first of the named barriers, one a unit

struct Fc1Warp {
  int group, unit, half;  // unit of the item, half of its rows
  int finished = 0;       // items

  // The groups' orders of units are opposite: items of fewer units load the SM's four schedulers alike.
  __device__ explicit Fc1Warp(int warp)
      : group(warp / kGroupWarps), unit((warp % kGroupWarps / 2) ^ (group * (kFc1ItemUnits - 1))), half(warp % 2) {}
};

// Half of the segment's steps at a time, as multiply_segment; `tokens`: shared address of the piece of the lane's row.
__device__ __forceinline__ void multiply_fc1_segment(float (&acc)[4], const uint32_t (&a)[kSteps][4], uint32_t tokens) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t b[4];
    ptx::ldmatrix_x4(b, tokens + half * (kSwizzleRowBytes / 2));
    ptx::mma_m16n8k16(acc, a[2 * half], b[0], b[1]);
    ptx::mma_m16n8k16(acc, a[2 * half + 1], b[2], b[3]);
  }
}

// One stage of a warp's rows, in the K order of fc1/mainloop.cuh.
__device__ __forceinline__ void multiply_fc1_stage(const Fc1Slot& slot, uint32_t tokens, const Fc1Warp& warp,
                                                   const Item& item, float (&acc)[4]) {
  const int lane = threadIdx.x % 32, r = lane / 4, t = lane % 4;
  const int unit = item.unit + warp.unit, row = 16 * warp.half + r;
  const uint8_t* weights = slot.weights + (kFc1UnitRows * warp.unit + row) * kSwizzleRowBytes;
  const fc1::StageScales scales(slot.scales + (unit / 4 - item.unit / 4) * kFc1ScaleBytes + t * 512 + row * 16 +
                                unit % 4 * 4);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint8_t* from = weights + ((2 * t + i) ^ r) * 16;
    const uint4 low = *reinterpret_cast<const uint4*>(from);
    const uint4 high = *reinterpret_cast<const uint4*>(from + kSwizzleAtomBytes);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int segment = 2 * i + half;
      uint32_t a[kSteps][4];
      dequantize_segment(half == 0 ? low.x : low.z, half == 0 ? low.y : low.w, scales.of(0, segment),
                         half == 0 ? high.x : high.z, half == 0 ? high.y : high.w, scales.of(1, segment), a);
      multiply_fc1_segment(acc, a, tokens + segment * kSegmentPitch);
    }
  }
}

// A block on its way from the four lanes that requantise it to the one that stores it.
struct StagedBlock {
  uint2 codes;
  alignas(8) uint8_t scale;
};

// Requantises the sixteen features of a unit for up to eight rows, four lanes a row; by one warp. `values` holds the
// activated values of both halves as their lanes left them, and is overwritten.
__device__ __forceinline__ void store_block(const Args& args, float (&values)[2][4 * 32], const Tile& tile, int unit,
                                            float encode) {
  const int lane = threadIdx.x % 32, token = lane / 4, part = lane % 4;
  const int at = 32 * (token % 2) + token / 2 + 8 * part;  // features 4 * part, + 1 of the lane row 2 * part
  const float v[] = {values[0][at], values[1][at], values[0][at + 4], values[1][at + 4]};
  StagedBlock* staged = reinterpret_cast<StagedBlock*>(values[0]);
  __syncwarp();  // every lane has its values
  fc1::requantize_block(v, part, encode, token < tile.rows(), reinterpret_cast<uint8_t*>(&staged[token].codes),
                        &staged[token].scale);
  __syncwarp();
  if (lane >= tile.rows()) return;
  const int row = tile.first_row() + lane;
  const uint2 codes = staged[lane].codes;
  const uint8_t scale = staged[lane].scale;
  send(packet_of(args, row, unit), codes, scale);
  *reinterpret_cast<uint2*>(args.fc1.hq + row * kFc2RowBytes + 8 * unit) = codes;
  args.fc1.hs[row * kFc2Groups + unit] = scale;
}
static_assert(kTokens * sizeof(StagedBlock) <= sizeof(float[4 * 32]));

__device__ __forceinline__ void finish_fc1_item(const Args& args, Shared& shared, Fc1Warp& warp, const Item& item,
                                                const Tile& tile, const Constants& constants, float (&acc)[4]) {
  const int lane = threadIdx.x % 32, rows = tile.rows();
  const int parity = warp.finished % 2, round = warp.finished / 2;
  ++warp.finished;
  auto& values = shared.exchange[parity][warp.unit];
  float* own = values[warp.half] + lane;
  uint64_t* sums_arrived = &shared.sums_arrived[parity][warp.unit][warp.half];
  if (warp.group != parity) {  // the groups take turns, so that neither falls behind
#pragma unroll
    for (int j = 0; j < 4; ++j) own[32 * j] = acc[j];
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(sums_arrived);
    return;
  }
  const fc1::Activation act(constants);
  ptx::mbarrier_wait(sums_arrived, round % 2);
#pragma unroll
  for (int j = 0; j < 4; ++j) acc[j] = act.scaled(add_rn(acc[j], own[32 * j]));
  float activated[2];  // together: their chains of dependent instructions overlap
#pragma unroll
  for (int i = 0; i < 2; ++i) activated[i] = act(acc[2 + i], acc[i]);
  if (!act.regular(activated[0]) || !act.regular(activated[1])) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (2 * (lane % 4) + i < rows) activated[i] = act.exact(acc[2 + i], acc[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) own[32 * i] = activated[i];
  ptx::named_barrier(kBlockBarrier + warp.unit, 64);  // all sixteen features are in place
  if (warp.half != 0) return;
  store_block(args, values, tile, item.unit + warp.unit, act.encode);
}

// Where a lane finds its row's piece of the group's first stage for ldmatrix, as a shared address. Rows beyond the
// tile's only reach accumulator columns that are never stored.
__device__ __forceinline__ uint32_t tokens_of(const Shared& shared, int group, const Tile& tile) {
  const int lane = threadIdx.x % 32, row = tile.first_row() + min(lane % 8, tile.rows() - 1);
  const int token = shared.row_routes[row] % kMaxRoutes / kTopK;
  return ptx::shared_address(shared.input[token]) + lane / 8 * 16 + group * kStages * kStagePitch;
}

// Returns the group's position after FC1's slots.
__device__ __forceinline__ uint32_t consume_fc1(const Args& args, Shared& shared, int warp_index) {
  Fc1Warp warp(warp_index);
  uint32_t position = 0;
  for_each_fc1_item(shared.fc1, [&](const Item& item) {
    const bool active = warp.unit < item.units;
    const Tile tile(shared.tiles[item.tile]);
    Constants constants(args.fc1, tile.expert());  // read here, ahead of their use
    for (float* value : {&constants.alpha, &constants.encode, &constants.beta, &constants.linear_beta})
      ptx::pin(*value);
    const uint32_t tokens = tokens_of(shared, warp.group, tile);
    float acc[4] = {};
#pragma unroll 1
    for (int stage = 0; stage < kStages; ++stage) {
      const RingSlot ring(position++);
      ptx::mbarrier_wait(&shared.slot_arrived[warp.group][ring.slot], ring.phase);
      if (active) {
        multiply_fc1_stage(shared.slots[warp.group][ring.slot].fc1, tokens + stage * kStagePitch, warp, item, acc);
      }
      __syncwarp();
      if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared.slot_consumed[warp.group][ring.slot]);
    }
    if (active) finish_fc1_item(args, shared, warp, item, tile, constants, acc);
  });
  return position;
}

}  // namespace cake_moe::sm90::experts

// FC1's producers: weights and scales by bulk copies, gathered tokens by cp.async, each into a ring of its own.
#pragma once

#include <cstdint>

#include "kernels/ptx/copy.cuh"
#include "kernels/sm90/fc1/shared.cuh"
#include "kernels/sm90/mma.cuh"

namespace cake_moe::sm90::fc1 {

// By one thread.
template <typename C>
__device__ __forceinline__ void produce_weights(const Args& args, const CUtensorMap& map, Shared<C>& shared,
                                                int units) {
  const uint64_t policy = C::kWide ? ptx::policy_evict_last() : ptx::policy_evict_first();
  RingPosition<C::kWeightSlots> at;
  for_each_unit<C>(args, units, [&](const Unit& u) {
    const int row = u.expert * kFc1Rows + u.row_block * C::kTileRows;
    const uint8_t* scales = args.scales + int64_t{row / 128} * (128 * kFc1Groups);
#pragma unroll 1
    for (int stage = 0; stage < C::kStages; ++stage) {
      auto& slot = shared.weights[at.slot];
      uint64_t* arrived = &shared.weights_arrived[at.slot];
      ptx::mbarrier_wait(&shared.weights_consumed[at.slot], at.phase ^ 1);
      ptx::mbarrier_arrive_expect(arrived, C::kStageBytes);
      ptx::tensor_copy_2d(slot.codes, &map, stage * (C::kStageK / 2), row, arrived, policy);
#pragma unroll
      for (int b = 0; b < C::kScaleBytes / C::kScaleBlockBytes; ++b) {
        ptx::bulk_copy(slot.scales + b * C::kScaleBlockBytes,
                       scales + b * (128 * kFc1Groups) + stage * C::kScaleBlockBytes, C::kScaleBlockBytes, arrived,
                       policy);
      }
      at.advance();
    }
  });
}

// A warp's share of a stage: every kTokenWarps-th group of eight rows, 512 bytes of a row an instruction. `offsets`
// holds the bytes of its rows in x_half, four groups a register; `target` is the shared address of the lane's piece of
// its first row.
template <typename C>
__device__ __forceinline__ void gather_tokens(const uint8_t* source, const uint32_t (&offsets)[C::kOffsets],
                                              uint32_t target, int rows) {
  constexpr int kTogether = 4;
#pragma unroll
  for (int group = 0; group < C::kGroupsOfWarp; ++group) {
    const int first = 8 * C::kTokenWarps * group;
    if (first >= rows) break;
#pragma unroll
    for (int batch = 0; batch < 8; batch += kTogether) {
      uint32_t from[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        from[i] = __shfl_sync(~0u, offsets[group / 4], group % 4 * 8 + batch + i);
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int row = batch + i;
        if (first + row >= rows) continue;
        ptx::cp_async_16((target ^ row * 16) + (first + row) * kSwizzleRowBytes, source + from[i]);
      }
    }
  }
}

// By kTokenWarps warps.
template <typename C>
__device__ __forceinline__ void produce_tokens(const Args& args, Shared<C>& shared, int warp, int units) {
  const int lane = threadIdx.x % 32;
  const uint32_t own = lane / 8 * C::kSegmentBytes + swizzled_byte(8 * warp, lane % 8);
  RingPosition<C::kTokenSlots> at;
  for_each_unit<C>(args, units, [&](const Unit& u) {
    const int rows = u.rows - 8 * warp;
    uint32_t offsets[C::kOffsets];
#pragma unroll
    for (int k = 0; k < C::kOffsets; ++k) {
      const int row = 8 * C::kTokenWarps * (4 * k + lane / 8) + lane % 8;
      const int32_t* route = args.row_route + u.first_row + 8 * warp + row;
      offsets[k] = row < rows ? __ldcg(route) / kTopK * (kHidden * 2) : 0;
    }
    const uint8_t* source = args.x_half + lane * 16;
#pragma unroll 1
    for (int stage = 0; stage < C::kStages; ++stage) {
      ptx::mbarrier_wait(&shared.tokens_consumed[at.slot], at.phase ^ 1);
      gather_tokens<C>(source, offsets, ptx::shared_address(shared.tokens[at.slot]) + own, rows);
      ptx::cp_async_arrive(&shared.tokens_arrived[at.slot]);
      source += C::kStageK * 2;
      at.advance();
    }
  });
}

}  // namespace cake_moe::sm90::fc1

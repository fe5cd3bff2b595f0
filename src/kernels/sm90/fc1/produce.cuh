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
#pragma unroll
      for (int b = 0; b < C::kTileRows; b += C::kBoxRows) {
        ptx::tensor_copy_2d(slot.codes + b * kSwizzleRowBytes, &map, stage * (C::kStageK / 2), row + b, arrived,
                            policy);
      }
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

// By kTokenWarps warps, which take sets of four rows in turn. A lane has a piece of one of them in every segment, so
// that its addresses in x_half and in a slot differ by constants.
template <typename C>
__device__ __forceinline__ void produce_tokens(const Args& args, Shared<C>& shared, int warp, int units) {
  constexpr int kSetRows = 4, kStep = kSetRows * C::kTokenWarps;  // from a warp's set to its next one
  constexpr uint32_t kAbsent = ~0u;
  const int row = kSetRows * warp + threadIdx.x % 32 / 8, piece = threadIdx.x % 8;
  const uint32_t places[] = {swizzled_byte(row, piece), swizzled_byte(row + kStep, piece)};
  RingPosition<C::kTokenSlots> at;
  for_each_unit<C>(args, units, [&](const Unit& u) {
    const int left = u.rows - row;
    uint32_t offsets[C::kSetsOfWarp];
#pragma unroll
    for (int set = 0; set < C::kSetsOfWarp; ++set) {
      const int32_t* route = &args.row_route[u.first_row + row + set * kStep];
      offsets[set] = set * kStep < left ? __ldcg(route) / kTopK * (kHidden * 2) + 16 * piece : kAbsent;
    }
    const uint8_t* source = args.x_half;
#pragma unroll 1
    for (int stage = 0; stage < C::kStages; ++stage) {
      ptx::mbarrier_wait(&shared.tokens_consumed[at.slot], at.phase ^ 1);
      const uint32_t slot = ptx::shared_address(shared.tokens[at.slot]);
#pragma unroll
      for (int set = 0; set < C::kSetsOfWarp; ++set) {
        if (offsets[set] == kAbsent) continue;
        const uint8_t* from = source + offsets[set];
        const uint32_t to = slot + places[set % 2] + set / 2 * (2 * kStep * kSwizzleRowBytes);
#pragma unroll
        for (int segment = 0; segment < C::kSegments; ++segment) {
          ptx::cp_async_16(to + segment * C::kSegmentBytes, from + segment * kSwizzleRowBytes);
        }
      }
      ptx::cp_async_arrive(&shared.tokens_arrived[at.slot]);
      source += C::kStageK * 2;
      at.advance();
    }
  });
}

}  // namespace cake_moe::sm90::fc1

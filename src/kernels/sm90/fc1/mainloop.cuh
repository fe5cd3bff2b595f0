// FC1's producer (weights, scales and gathered tokens into a ring) and the consumers' accumulation.
#pragma once

#include <cstdint>

#include "kernels/ptx/copy.cuh"
#include "kernels/ptx/sync.cuh"
#include "kernels/sm90/fc1/args.h"
#include "kernels/sm90/fc1/config.h"
#include "kernels/sm90/mma.cuh"

namespace cake_moe::sm90::fc1 {

template <typename C>
struct Shared {
  struct Slot {
    alignas(1024) uint8_t weights[C::kWeightBytes];  // [row][128 bytes], 128-byte swizzle
    uint8_t tokens[C::kTokenBytes];                  // [segment][token][128 bytes], 128-byte swizzle
    uint8_t scales[C::kScaleBytes];                  // [128 rows][4 atoms of 512 bytes]
  };
  struct Exchange {
    float values[2][C::kPlaneFloats];  // activated, [token of a pass][32 features], of two passes
    float factors[128];                // hidden_block_factor of each scale
  };
  Slot slots[C::kSlots];
  Exchange exchange[C::kConsumers];
  uint64_t stage_arrived[C::kSlots];
  uint64_t stage_consumed[C::kSlots];
};

struct Unit {
  int expert, first_row, rows, row_block;
};

template <typename C>
__device__ __forceinline__ Unit load_unit(const Args& args, int unit) {
  const int4 tile = __ldcg(&args.tiles[unit / C::kRowBlocks]);
  return {tile.x, tile.y, tile.z, unit % C::kRowBlocks};
}

// A warp's share of a stage of gathered tokens: every kProducerWarps-th row, 512 bytes of it an instruction. `offset`
// holds in lane i the byte of the share's row i in x_half; `target` is the shared address of row 0's piece of this
// lane.
template <typename C>
__device__ __forceinline__ void gather_tokens(const uint8_t* source, uint32_t offset, uint32_t target, int warp,
                                              int rows) {
  constexpr int kTogether = 4;
  const int share = (rows - warp + C::kProducerWarps - 1) / C::kProducerWarps;
#pragma unroll
  for (int first = 0; first < C::kTokenWarpRows; first += kTogether) {
    if (first >= share) break;
#pragma unroll
    for (int i = first; i < first + kTogether && i < C::kTokenWarpRows; ++i) {
      const uint32_t from = __shfl_sync(~0u, offset, i);
      const uint32_t row = C::kProducerWarps * i % 8 + warp, below = C::kProducerWarps * i / 8 * 8;
      if (i < share) ptx::cp_async_16((target ^ row % 8 * 16) + (below + row) * kSwizzleRowBytes, source + from);
    }
  }
}

// One of kProducerWarps warps; the first also starts the bulk copies.
template <typename C>
__device__ __forceinline__ void produce(const Args& args, const CUtensorMap& weights, Shared<C>& shared, int warp,
                                        int units) {
  const int lane = threadIdx.x % 32;
  const uint64_t stream_policy = ptx::policy_evict_first(), keep_policy = ptx::policy_evict_last();
  const uint64_t weight_policy = C::kWide ? keep_policy : stream_policy;
  RingPosition<C::kSlots> at;
  for (int unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const Unit u = load_unit<C>(args, unit);
    const int mine = C::kProducerWarps * lane + warp;
    const uint32_t token =
        mine < u.rows && lane < C::kTokenWarpRows ? __ldcg(&args.row_route[u.first_row + mine]) / kTopK : 0;
    const int weight_row = u.expert * kFc1Rows + u.row_block * C::kTileRows;
    const uint8_t* scales = args.scales + int64_t{u.expert} * (kFc1Rows * kFc1Groups) +
                            u.row_block * C::kTileRows / 128 * (128 * kFc1Groups);
    for (int stage = 0; stage < C::kStages; ++stage) {
      auto& slot = shared.slots[at.slot];
      uint64_t* arrived = &shared.stage_arrived[at.slot];
      ptx::mbarrier_wait(&shared.stage_consumed[at.slot], at.phase ^ 1);
      if (warp == 0 && lane == 0) {
        ptx::mbarrier_arrive_expect(arrived, C::kWeightBytes + C::kScaleBytes);
        ptx::tensor_copy_2d(slot.weights, &weights, stage * (C::kStageK / 2), weight_row, arrived, weight_policy);
#pragma unroll
        for (int b = 0; b < C::kScaleBytes / C::kScaleBlockBytes; ++b) {
          ptx::bulk_copy(slot.scales + b * C::kScaleBlockBytes,
                         scales + b * (128 * kFc1Groups) + stage * C::kScaleBlockBytes, C::kScaleBlockBytes, arrived,
                         weight_policy);
        }
      }
      __syncwarp();
      gather_tokens<C>(args.x_half + stage * (C::kStageK * 2) + lane * 16, token * (kHidden * 2),
                       ptx::shared_address(slot.tokens) + lane / 8 * C::kSegmentBytes + lane % 8 * 16, warp, u.rows);
      ptx::cp_async_arrive(arrived);
      at.advance();
    }
  }
}

// Shifted scales of a lane's two rows for the four segments of a stage.
struct StageScales {
  __half2 pairs[2][2];

  StageScales() = default;
  __device__ __forceinline__ explicit StageScales(const uint8_t* low_row) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t word = *reinterpret_cast<const uint32_t*>(low_row + 8 * 16 * half);
      pairs[half][0] = shifted_scales(static_cast<uint16_t>(word));
      pairs[half][1] = shifted_scales(static_cast<uint16_t>(word >> 16));
    }
  }
  __device__ __forceinline__ __half2 of(int half, int segment) const {
    return segment % 2 == 0 ? __low2half2(pairs[half][segment / 2]) : __high2half2(pairs[half][segment / 2]);
  }
};

template <typename C>
__device__ __forceinline__ StageScales load_scales(const typename Shared<C>::Slot& slot, int subtile) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  return StageScales(slot.scales + subtile / 2 * C::kScaleBlockBytes + lane % 4 * 512 +
                     (16 * (warp % 2) + lane / 4) * 16 + (2 * (subtile % 2) + warp / 2) * 4);
}

// The two 16-byte pieces (of row r and of row r + 8) that hold a lane's part of segments 2 * i and 2 * i + 1.
struct Pieces {
  uint4 low, high;
};
template <typename C>
__device__ __forceinline__ Pieces load_pieces(const typename Shared<C>::Slot& slot, int subtile, int i) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, r = lane / 4;
  const uint8_t* from =
      slot.weights + (64 * subtile + 16 * warp + r) * kSwizzleRowBytes + ((2 * (lane % 4) + i) ^ r) * 16;
  return {*reinterpret_cast<const uint4*>(from), *reinterpret_cast<const uint4*>(from + kSwizzleAtomBytes)};
}

__device__ __forceinline__ void dequantize_pieces(const Pieces& p, const StageScales& scales, int segment,
                                                  uint32_t (&a)[kSteps][4]) {
  const __half2 low = scales.of(0, segment), high = scales.of(1, segment);
  if (segment % 2 == 0) {
    dequantize_segment(p.low.x, p.low.y, low, p.high.x, p.high.y, high, a);
  } else {
    dequantize_segment(p.low.z, p.low.w, low, p.high.z, p.high.w, high, a);
  }
}

// One stage by warpgroup MMA on kN tokens. `on_started` runs once every earlier stage's MMAs have ended.
template <typename C, int kN, typename OnStarted>
__device__ __forceinline__ void multiply_stage(const typename Shared<C>::Slot& slot, int group,
                                               float (&acc)[C::kSubtiles][C::kTokens / 2],
                                               uint32_t (&a)[C::kBuffers][kSteps][4], const OnStarted& on_started) {
  ptx::fence_async_shared();  // cp.async wrote the tokens through the generic proxy, wgmma reads past it
  const uint64_t tokens = ptx::swizzle128_descriptor(ptx::shared_address(slot.tokens));
  StageScales scales[C::kSubtiles];
#pragma unroll
  for (int m = 0; m < C::kSubtiles; ++m) scales[m] = load_scales<C>(slot, C::kSubtiles * group + m);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int m = 0; m < C::kSubtiles; ++m) {
      const Pieces pieces = load_pieces<C>(slot, C::kSubtiles * group + m, i);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        constexpr int kLast = C::kBuffers - 1;
        dequantize_pieces(pieces, scales[m], 2 * i + half, a[half & kLast]);
        start_segment<kN>(acc[m], a[half & kLast], tokens + (2 * i + half) * (C::kSegmentBytes >> 4));
        ptx::wgmma_wait<kLast>();
        if (i == 0 && m == 0 && half == 0) on_started();
      }
    }
  }
}

// Segments 2 * i and 2 * i + 1 of a stage by warp MMA, with the scales of rows r and r + 8.
template <typename C>
__device__ __forceinline__ void multiply_pieces(const typename Shared<C>::Slot& slot, int subtile, int i, __half2 low,
                                                __half2 high, float (&acc)[C::kTokens / 2]) {
  const Pieces p = load_pieces<C>(slot, subtile, i);
  const uint32_t tokens = ptx::shared_address(slot.tokens) + 2 * i * C::kSegmentBytes;
  uint32_t a[kSteps][4];
  dequantize_segment(p.low.x, p.low.y, __low2half2(low), p.high.x, p.high.y, __low2half2(high), a);
  multiply_segment<C::kTokens>(acc, a, tokens);
  dequantize_segment(p.low.z, p.low.w, __high2half2(low), p.high.z, p.high.w, __high2half2(high), a);
  multiply_segment<C::kTokens>(acc, a, tokens + C::kSegmentBytes);
}

// One stage of a warpgroup's subtile by warp MMA.
template <typename C>
__device__ __forceinline__ void multiply_stage(const typename Shared<C>::Slot& slot, int group,
                                               float (&acc)[C::kSubtiles][C::kTokens / 2]) {
  const StageScales scales = load_scales<C>(slot, group);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    multiply_pieces<C>(slot, group, i, scales.pairs[0][i], scales.pairs[1][i], acc[0]);
  }
}

// Columns that no MMA writes: no token's, but the epilogue's passes may read them, and zero is not its fast case.
template <int kN, int kCount>
__device__ __forceinline__ void clear_columns(float (&acc)[kCount]) {
  clear(reinterpret_cast<float(&)[kN / 2]>(acc));
#pragma unroll
  for (int j = kN / 2; j < kCount; ++j) acc[j] = 1.0f;
}

// acc[m] = weights[64 rows of subtile m] * tokens, over all of K, for the first kN tokens. Leaves every slot released.
template <typename C, int kN>
__device__ __forceinline__ void accumulate(Shared<C>& shared, RingPosition<C::kSlots>& at, int group,
                                           float (&acc)[C::kSubtiles][C::kTokens / 2]) {
  const bool first_lane = threadIdx.x % 32 == 0;
#pragma unroll
  for (int m = 0; m < C::kSubtiles; ++m) clear_columns<kN>(acc[m]);
  if constexpr (C::kWarpMma) {
#pragma unroll 1
    for (int stage = 0; stage < C::kStages; ++stage) {
      ptx::mbarrier_wait(&shared.stage_arrived[at.slot], at.phase);
      multiply_stage<C>(shared.slots[at.slot], group, acc);
      __syncwarp();
      if (first_lane) ptx::mbarrier_arrive(&shared.stage_consumed[at.slot]);
      at.advance();
    }
  } else {
    uint64_t* previous = nullptr;
    uint32_t a[C::kBuffers][kSteps][4];
#pragma unroll 1
    for (int stage = 0; stage < C::kStages; ++stage) {
      ptx::mbarrier_wait(&shared.stage_arrived[at.slot], at.phase);
      multiply_stage<C, kN>(shared.slots[at.slot], group, acc, a, [&] {
        if (previous != nullptr && first_lane) ptx::mbarrier_arrive(previous);
      });
      previous = &shared.stage_consumed[at.slot];
      at.advance();
    }
    ptx::wgmma_wait<0>();
#pragma unroll
    for (int m = 0; m < C::kSubtiles; ++m) {
#pragma unroll
      for (int j = 0; j < kN / 2; ++j) ptx::pin(acc[m][j]);
    }
    if (first_lane) ptx::mbarrier_arrive(previous);
  }
}

// By MMAs no wider than the tile's rows need. `rows` is the same in the whole warpgroup.
template <typename C, int kN = C::kTokens>
__device__ __forceinline__ void accumulate_rows(Shared<C>& shared, RingPosition<C::kSlots>& at, int group, int rows,
                                                float (&acc)[C::kSubtiles][C::kTokens / 2]) {
  if constexpr (kN > C::kLeastTokens) {
    if (rows <= kN - 8) return accumulate_rows<C, kN - 8>(shared, at, group, rows, acc);
  }
  accumulate<C, kN>(shared, at, group, acc);
}

}  // namespace cake_moe::sm90::fc1

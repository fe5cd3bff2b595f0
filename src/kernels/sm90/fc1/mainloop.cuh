// FC1's consumers: accumulation over all of K.
#pragma once

#include <cstdint>

#include "kernels/sm90/columns.h"
#include "kernels/sm90/fc1/shared.cuh"
#include "kernels/sm90/mma.cuh"

namespace cake_moe::sm90::fc1 {

// Where a warp's walk through both rings has come to.
template <typename C>
struct Position {
  RingPosition<C::kWeightSlots> weights;
  RingPosition<C::kTokenSlots> tokens;
};

// Shifted scales of a lane's two rows for the four segments of a stage.
struct StageScales {
  __half2 pairs[2][2];

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
__device__ __forceinline__ StageScales load_scales(const typename Shared<C>::Weights& weights, int subtile) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  return StageScales(weights.scales + subtile / 2 * C::kScaleBlockBytes + lane % 4 * 512 +
                     (16 * (warp % 2) + lane / 4) * 16 + (2 * (subtile % 2) + warp / 2) * 4);
}

// The words of a lane (of row r and of row r + 8) that hold its part of a segment: half of a 16-byte piece.
struct Words {
  uint2 low, high;
};
template <typename C>
__device__ __forceinline__ Words load_words(const typename Shared<C>::Weights& weights, int subtile, int segment) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, r = lane / 4;
  const uint8_t* from = weights.codes + (64 * subtile + 16 * warp + r) * kSwizzleRowBytes +
                        ((2 * (lane % 4) + segment / 2) ^ r) * 16 + segment % 2 * 8;
  return {*reinterpret_cast<const uint2*>(from), *reinterpret_cast<const uint2*>(from + kSwizzleAtomBytes)};
}

// acc = weights[64 rows of the subtile] * tokens, over all of K, for the first kN tokens. Leaves every slot released.
template <typename C, int kN>
__device__ __forceinline__ void accumulate(Shared<C>& shared, Position<C>& at, int subtile,
                                           float (&acc)[C::kTokens / 2]) {
  constexpr int kLast = C::kWarpMma ? 0 : C::kFragments - 1;  // groups of MMAs in flight
  const bool first_lane = threadIdx.x % 32 == 0;
  clear(acc);
#pragma unroll 1
  for (int stage = 0; stage < C::kStages; ++stage) {
    const auto& weights = shared.weights[at.weights.slot];
    const uint32_t tokens = ptx::shared_address(shared.tokens[at.tokens.slot]);
    ptx::mbarrier_wait(&shared.weights_arrived[at.weights.slot], at.weights.phase);
    const StageScales scales = load_scales<C>(weights, subtile);
    Words words;
    uint32_t fragments[kLast + 1][kSteps][4];
    if constexpr (C::kWordsAhead) words = load_words<C>(weights, subtile, 0);
#pragma unroll
    for (int segment = 0; segment < C::kSegments; ++segment) {
      auto& a = fragments[segment & kLast];
      if constexpr (!C::kWordsAhead) words = load_words<C>(weights, subtile, segment);
      dequantize_segment(words.low.x, words.low.y, scales.of(0, segment), words.high.x, words.high.y,
                         scales.of(1, segment), a);
      if (segment == 0) {
        ptx::mbarrier_wait(&shared.tokens_arrived[at.tokens.slot], at.tokens.phase);
        if constexpr (!C::kWarpMma) ptx::fence_async_shared();  // wgmma reads past the proxy of cp.async
      }
      if constexpr (C::kWarpMma) {
        multiply_segment<kN>(acc, a, tokens + segment * C::kSegmentBytes);
      } else {
        start_segment<kN>(acc, a, ptx::swizzle128_descriptor(tokens) + (segment * C::kSegmentBytes >> 4));
      }
      if (segment + 1 == C::kSegments) {
        __syncwarp();  // every lane has its last weights in registers
        if (first_lane) ptx::mbarrier_arrive(&shared.weights_consumed[at.weights.slot]);
      } else if constexpr (C::kWordsAhead) {
        words = load_words<C>(weights, subtile, segment + 1);
      }
      if constexpr (!C::kWarpMma) {
        if (segment + 1 < C::kSegments) {
          ptx::wgmma_wait<kLast>();
        } else {
          ptx::wgmma_wait<0>();
        }
      }
    }
    __syncwarp();
    if (first_lane) ptx::mbarrier_arrive(&shared.tokens_consumed[at.tokens.slot]);
    at.weights.advance();
    at.tokens.advance();
  }
#pragma unroll
  for (int j = 0; j < kN / 2; ++j) ptx::pin(acc[j]);
}

// By MMAs no wider than the tile's rows need. `rows` is the same in the whole warpgroup.
template <typename C, int kN = C::kTokens>
__device__ __forceinline__ void accumulate_rows(Shared<C>& shared, Position<C>& at, int subtile, int rows,
                                                float (&acc)[C::kTokens / 2]) {
  constexpr int kNext = narrower(kN, C::kFineColumns);
  if constexpr (kNext > 0) {
    if (rows <= kNext) return accumulate_rows<C, kNext>(shared, at, subtile, rows, acc);
  }
  accumulate<C, kN>(shared, at, subtile, acc);
}

}  // namespace cake_moe::sm90::fc1

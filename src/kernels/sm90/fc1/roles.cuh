// FC1's consumers in pairs of warpgroups: one dequantises the pair's weight rows into a ring of shared memory, one
// multiplies them from there, so that its epilogue meets the dequantisation of the next unit.
#pragma once

#include <cstdint>

#include "kernels/sm90/columns.h"
#include "kernels/sm90/fc1/epilogue.cuh"
#include "kernels/sm90/fc1/shared.cuh"
#include "kernels/sm90/mma.cuh"

namespace cake_moe::sm90::fc1 {

// By a warpgroup, a row a thread: all of a row's pieces go through one lane, and with eight neighbouring rows in eight
// lanes neither reads nor writes conflict. The rows of a warp have their scales in 128 contiguous bytes.
template <typename C>
__device__ __forceinline__ void dequantize_rows(const Args& args, Shared<C>& shared, int pair, int units) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const int row = 32 * (lane / 8) + 8 * warp + lane % 8;
  uint32_t places[8];  // of a row's pieces under the swizzle
#pragma unroll
  for (int piece = 0; piece < 8; ++piece) places[piece] = swizzled_byte(row, piece);
  const uint32_t scale_place = pair * C::kScaleBlockBytes + row % 32 * 16 + row / 32 * 4;
  RingPosition<C::kWeightSlots> at;
  RingPosition<C::kOperandSlots> to;
  for_each_unit<C>(args, units, [&](const Unit&) {
#pragma unroll 1
    for (int stage = 0; stage < C::kStages; ++stage) {
      const auto& weights = shared.weights[at.slot];
      const uint8_t* codes = weights.codes + pair * C::kPairRows * kSwizzleRowBytes;
      ptx::mbarrier_wait(&shared.weights_arrived[at.slot], at.phase);
      // Every other piece of 32 elements holds two segments: of each, half of the piece.
#pragma unroll 1
      for (int odd = 0; odd < 2; ++odd) {
        uint4 pieces[4];
        __half2 scales[4];  // of both segments
#pragma unroll
        for (int t = 0; t < 4; ++t) {
          pieces[t] = *reinterpret_cast<const uint4*>(codes + (odd ? places[2 * t + 1] : places[2 * t]));
          scales[t] = shifted_scales(
              *reinterpret_cast<const uint16_t*>(weights.scales + scale_place + 512 * t + sizeof(uint16_t) * odd));
        }
        if (odd) {
          __syncwarp();  // every lane has its last weights in registers
          if (lane == 0) ptx::mbarrier_arrive(&shared.weights_consumed[at.slot]);
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          ptx::mbarrier_wait(&shared.operands_consumed[pair][to.slot], to.phase ^ 1);
          uint8_t* operands = shared.operands[pair][to.slot];
          __half2 own[4];
#pragma unroll
          for (int t = 0; t < 4; ++t) own[t] = half == 0 ? __low2half2(scales[t]) : __high2half2(scales[t]);
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            uint32_t words[4];
#pragma unroll
            for (int t = 0; t < 4; ++t) {
              const uint32_t parts[] = {pieces[t].x, pieces[t].y, pieces[t].z, pieces[t].w};
              words[t] = parts[2 * half + j];
            }
            uint4 values[4];
            dequantize_pieces(words, own, values);
#pragma unroll
            for (int k = 0; k < 4; ++k) *reinterpret_cast<uint4*>(operands + places[4 * j + k]) = values[k];
          }
          ptx::fence_async_shared();
          __syncwarp();
          if (lane == 0) ptx::mbarrier_arrive(&shared.operands_arrived[pair][to.slot]);
          to.advance();
        }
      }
      at.advance();
    }
  });
}

// Where a multiplying warp has come to.
template <typename C>
struct OperandPosition {
  RingPosition<C::kOperandSlots> operands;
  RingPosition<C::kTokenSlots> tokens;
};

// acc = weights[rows of the pair] * tokens, over all of K, for the first kN tokens. Leaves every slot released.
template <typename C, int kN>
__device__ __forceinline__ void multiply(Shared<C>& shared, OperandPosition<C>& at, int pair,
                                         float (&acc)[C::kPairTiles][C::kTokens / 2]) {
  const bool first_lane = threadIdx.x % 32 == 0;
#pragma unroll
  for (int i = 0; i < C::kPairTiles; ++i) clear(acc[i]);
#pragma unroll 1
  for (int stage = 0; stage < C::kStages; ++stage) {
    uint64_t tokens = ptx::swizzle128_descriptor(ptx::shared_address(shared.tokens[at.tokens.slot]));
    ptx::mbarrier_wait(&shared.tokens_arrived[at.tokens.slot], at.tokens.phase);
    ptx::fence_async_shared();  // wgmma reads past the proxy of cp.async
    int running = 0;            // slot of the segment that may still be multiplied
#pragma unroll 1
    for (int segment = 0; segment < C::kSegments; ++segment) {
      const int slot = at.operands.slot;
      const uint64_t rows = ptx::swizzle128_descriptor(ptx::shared_address(shared.operands[pair][slot]));
      ptx::mbarrier_wait(&shared.operands_arrived[pair][slot], at.operands.phase);
      ptx::wgmma_fence();
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
#pragma unroll
        for (int i = 0; i < C::kPairTiles; ++i) {
          auto& columns = reinterpret_cast<float (&)[kN / 2]>(acc[i]);
          ptx::wgmma_m64k16<kN>(columns, rows + (64 * kSwizzleRowBytes * i + 32 * step >> 4),
                                tokens + (32 * step >> 4));
        }
      }
      ptx::wgmma_commit();
      if (segment > 0) {
        ptx::wgmma_wait<1>();
        if (first_lane) ptx::mbarrier_arrive(&shared.operands_consumed[pair][running]);
      }
      running = slot;
      tokens += C::kSegmentBytes >> 4;
      at.operands.advance();
    }
    ptx::wgmma_wait<0>();
    if (first_lane) {
      ptx::mbarrier_arrive(&shared.operands_consumed[pair][running]);
      ptx::mbarrier_arrive(&shared.tokens_consumed[at.tokens.slot]);
    }
    at.tokens.advance();
  }
#pragma unroll
  for (int i = 0; i < C::kPairTiles; ++i) {
#pragma unroll
    for (int j = 0; j < kN / 2; ++j) ptx::pin(acc[i][j]);
  }
}

// By MMAs no wider than the tile's rows need. `rows` is the same in the whole warpgroup.
template <typename C, int kN = C::kTokens>
__device__ __forceinline__ void multiply_rows(Shared<C>& shared, OperandPosition<C>& at, int pair, int rows,
                                              float (&acc)[C::kPairTiles][C::kTokens / 2]) {
  constexpr int kNext = narrower(kN, C::kFineColumns);
  if constexpr (kNext > 0) {
    if (rows <= kNext) return multiply_rows<C, kNext>(shared, at, pair, rows, acc);
  }
  multiply<C, kN>(shared, at, pair, acc);
}

// By a warpgroup.
template <typename C>
__device__ __forceinline__ void multiply_units(const Args& args, Shared<C>& shared, int pair, int units) {
  OperandPosition<C> at;
  for_each_unit<C>(args, units, [&](const Unit& unit) {
    const SpreadConstants constants(args, unit.expert);
    float acc[C::kPairTiles][C::kTokens / 2];
    multiply_rows(shared, at, pair, __shfl_sync(~0u, unit.rows, 0), acc);
    // A rolled loop, whose registers move down since they have no index: one epilogue's code.
#pragma unroll 1
    for (int i = 0; i < C::kPairTiles; ++i) {
      store_unit<C>(args, shared, pair, C::kPairTiles * pair + i, unit, constants, acc[0]);
#pragma unroll
      for (int j = 0; j < C::kTokens / 2; ++j) acc[0][j] = acc[C::kPairTiles - 1][j];
    }
  });
}

}  // namespace cake_moe::sm90::fc1

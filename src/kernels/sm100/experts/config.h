// Numbers of the expert kernel: units of 128 stored weight rows by up to kTokens rows of one expert.
#pragma once

#include "kernels/sm100/descriptor.h"
#include "kernels/sm100/limits.h"
#include "plan/problem.h"

namespace cake_moe::sm100::experts {

constexpr int max_of(int a, int b) { return a > b ? a : b; }

// One of the two GEMMs: how its K is cut into stages of the ring.
template <int kRows_, int kK_, int kStageK_, int kChunkBytes_>
struct Gemm {
  static constexpr int kRowBlocks = kRows_ / kMmaRows;        // units of a token tile
  static constexpr int kStages = kK_ / kStageK_;              // of a unit
  static constexpr int kSteps = kStageK_ / kMmaK;             // MMAs of a stage
  static constexpr int kChunkBytes = kChunkBytes_;            // packed bytes of a row that share a swizzle atom
  static constexpr int kChunks = kStageK_ / 2 / kChunkBytes;  // of a stage
  static constexpr int kChunkSteps = kSteps / kChunks;
  static constexpr int kGroups = kK_ / kGroup;  // block scales of a row
  static constexpr int kWeightBytes = kMmaRows * kStageK_ / 2;
  static constexpr int kScaleBytes = kSteps * kScaleAtomBytes;
  static_assert(kRows_ % kMmaRows == 0 && kK_ % kStageK_ == 0 && kStageK_ / 2 % kChunkBytes == 0);
};
using Fc1 = Gemm<kFc1Rows, kHidden, 256, 128>;
using Fc2 = Gemm<kFc2Rows, kIntermediate, kIntermediate, 64>;  // 192 bytes a row: one and a half wide swizzle atoms

// kQuantize: few tokens; the CTA sorts the routes and quantises the rows that it multiplies.
template <int kTokens_, bool kQuantize_ = false>
struct Config {
  static constexpr int kTokens = kTokens_;
  static constexpr bool kQuantize = kQuantize_;
  static constexpr int kScaleAtoms = (kTokens + kScaleAtomRows - 1) / kScaleAtomRows;  // of an MMA's tokens

  // A slot of the ring holds a stage of either GEMM.
  static constexpr int kWeightBytes = max_of(Fc1::kWeightBytes, Fc2::kWeightBytes);
  static constexpr int kWeightScaleBytes = max_of(Fc1::kScaleBytes, Fc2::kScaleBytes);
  static constexpr int kTokenBytes = max_of(kTokens * Fc1::kChunks * 128, kTokens* Fc2::kChunks * 64);
  static constexpr int kTokenScaleBytes = max_of(Fc1::kSteps, Fc2::kSteps) * kScaleAtoms * kScaleAtomBytes;
  static constexpr int kSlotBytes =
      (kWeightBytes + kTokenBytes + kWeightScaleBytes + kTokenScaleBytes + 1023) / 1024 * 1024;
  static constexpr int kControlBytes = kQuantize ? 12 * 1024 : 1024;
  static constexpr int kSlots = (kSmemOfCta - kControlBytes) / kSlotBytes;
  static constexpr int kItems = 4;  // claimed units between the roles

  // Tensor memory: two accumulators, so that one is stored while the next is summed; the scales of one stage.
  static constexpr int kAccumulators = 2;
  static constexpr int kSteps = max_of(Fc1::kSteps, Fc2::kSteps);
  static constexpr int kWeightScaleColumn = kAccumulators * kTokens;
  static constexpr int kTokenScaleColumn = kWeightScaleColumn + kSteps * kScaleAtomColumns;
  static constexpr int kColumns = kTokenScaleColumn + kSteps * kScaleAtoms * kScaleAtomColumns;
  static constexpr int kAllocated = kColumns <= 128 ? 128 : kColumns <= 256 ? 256 : 512;

  // Warps: an epilogue warpgroup, whose warps own a quadrant of tensor memory each, then the other roles.
  static constexpr int kEpilogueWarps = 4, kWeightWarp = 4, kMmaWarp = 5, kFirstTokenWarp = 6;
  static constexpr int kTokenWarps = kTokens <= 64 ? 4 : 6;
  static constexpr int kTokenThreads = 32 * kTokenWarps;
  static constexpr int kThreads = 32 * (kFirstTokenWarp + kTokenWarps);

  static_assert(kTokens % 8 == 0 && kTokens <= 256);
  static_assert(kSlots >= 2);
  static_assert(kColumns <= kTmemColumns);
  static_assert(!kQuantize || kTokens == 8, "a thread quantises one block of a stage");
};

}  // namespace cake_moe::sm100::experts

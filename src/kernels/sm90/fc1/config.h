// Numbers of the FC1 kernel: 128, 256 or 384 stored weight rows by up to kTokens rows of one expert.
#pragma once

#include "kernels/sm90/limits.h"
#include "plan/problem.h"

namespace cake_moe::sm90::fc1 {

template <int kTokens_>
struct Config {
  static constexpr int kTokens = kTokens_;  // most rows of a token tile
  // For columns.h: FC1's time is that of its MMAs in every tile.
  static constexpr int kFineColumns = kTokens > 48 ? kTokens - 40 : 8;
  static constexpr bool kWide = kTokens > 8;  // one CTA fills the SM; more weight rows reuse the tokens
  static constexpr bool kWarpMma = kTokens == 8;
  // Of 64 weight rows each; they cover for each other. As many as divide the rows and as registers allow.
  static constexpr int kConsumers = !kWide ? 2 : kTokens <= 64 ? 6 : 4;
  static constexpr int kTileRows = 64 * kConsumers;
  static constexpr int kRowBlocks = kFc1Rows / kTileRows;  // units of a token tile
  static constexpr int kTokenWarps = kWide ? 3 : 1;        // producers; one more warp brings weights
  static constexpr int kProducerWarps = kTokenWarps + 1;
  static constexpr int kConsumerThreads = kConsumers * 128;
  static constexpr int kThreads = kConsumerThreads + 32 * kProducerWarps;
  static constexpr int kCtasPerSm = kWide ? 1 : 2;
  static constexpr int kProducerRegisters = kConsumers == 6 ? 24 : 32;  // kWide only, as the next one
  static constexpr int kConsumerRegisters = kConsumers == 6 ? 80 : 112;
  static constexpr int kLaunchRegisters = kConsumers == 6 ? 72 : 96;  // the compiler's share before they move

  // Weights of the next segment are read while one is multiplied, where registers allow: else MMAs are serialised.
  static constexpr bool kWordsAhead = kTokens <= 96 && kTokens != 48 && kTokens != 64;

  // Fragments of a warpgroup in flight, as registers allow.
  static constexpr int kFragments = kTokens <= 32 ? 2 : 1;

  // A stage is K = 256: 128 bytes of each weight row, one word of scales of each row; 512 bytes of each token, in a
  // ring of their own.
  static constexpr int kStageK = 256;
  static constexpr int kStages = kHidden / kStageK;
  static constexpr int kSegments = kStageK / 64;
  static constexpr int kBoxRows = kTileRows > 256 ? kTileRows / 2 : kTileRows;  // of a copy of weights
  static constexpr int kWeightBytes = kTileRows * kStageK / 2;
  static constexpr int kScaleBlockBytes = 128 * kStageK / kGroup;  // of 128 rows, contiguous in memory
  static constexpr int kScaleBytes = kTileRows / 128 * kScaleBlockBytes;
  static constexpr int kStageBytes = kWeightBytes + kScaleBytes;
  static constexpr int kSegmentBytes = kTokens * 128;  // tokens of K = 64
  static constexpr int kTokenBytes = kSegments * kSegmentBytes;
  static constexpr int kSetsOfWarp = (kTokens / 4 + kTokenWarps - 1) / kTokenWarps;  // of 4 token rows, a producer's

  // The epilogue exchanges a few tokens of a warpgroup's 32 features at a time.
  static constexpr int kPassTokens = kTokens < 16 ? 8 : 16;
  static constexpr int kExchangePitch = 36;  // floats of a token: 32 features, padded
  static constexpr int kPlaneFloats = kPassTokens * kExchangePitch;
  static constexpr int kExchangeBytes = kConsumers * (2 * kPlaneFloats + 256) * 4;

  static constexpr int kFreeBytes = max_smem_bytes(kCtasPerSm) - kExchangeBytes - 256;
  static constexpr int kFit = (kFreeBytes - 2 * kTokenBytes) / kStageBytes;
  static constexpr int kMostSlots = !kWide ? 5 : kTokens <= 64 ? 3 : 2;  // more serve better as slots of tokens
  static constexpr int kWeightSlots = kFit < kMostSlots ? kFit : kMostSlots;
  static constexpr int kFitTokens = (kFreeBytes - kWeightSlots * kStageBytes) / kTokenBytes;
  static constexpr int kTokenSlots = kFitTokens < 8 ? kFitTokens : 8;

  static_assert(kHidden % kStageK == 0 && kFc1Rows % kTileRows == 0 && kTileRows % 128 == 0);
  static_assert(kWeightBytes % 1024 == 0 && kSegmentBytes % 1024 == 0 && kScaleBytes % 1024 == 0, "swizzle atoms");
  static_assert(kWeightSlots >= 2 && kTokenSlots >= 2);
  static_assert(kTokens % 8 == 0 && kTokens <= 128);
  static_assert(!kWide || kConsumerThreads * kConsumerRegisters + 32 * kProducerWarps * kProducerRegisters <=
                              kThreads * kLaunchRegisters,
                "registers move inside the CTA's own share: asking for more would wait for ever");
};

}  // namespace cake_moe::sm90::fc1

// Numbers of the FC2 kernel: units of 128 or 256 stored weight rows by up to kTokens rows of one expert, all of K =
// 384.
#pragma once

#include "kernels/sm90/limits.h"
#include "plan/problem.h"

namespace cake_moe::sm90::fc2 {

template <int kTokens_>
struct Config {
  static constexpr int kTokens = kTokens_;    // most rows of a token tile
  static constexpr bool kWide = kTokens > 8;  // one CTA fills the SM; more weight rows reuse the tokens
  static constexpr bool kWarpMma = kTokens == 8;
  static constexpr int kConsumers = kWide && kTokens <= 96 ? 4 : 2;  // warpgroups, each with 64 rows of every unit
  static constexpr int kBuffers = kConsumers == 4 && kTokens > 64 ? 1 : 2;  // A fragments in flight of a warpgroup
  static constexpr int kConsumerThreads = kConsumers * 128;
  static constexpr int kProducerWarps = kConsumers == 4 ? 4 : 1;  // one works; registers move between whole warpgroups
  static constexpr int kThreads = kConsumerThreads + 32 * kProducerWarps;
  static constexpr int kProducerRegisters = 32, kConsumerRegisters = 112, kLaunchRegisters = 96;  // of four consumers
  static constexpr int kCtasPerSm = kWide ? 1 : 2;

  static constexpr int kFinalizeChunks = kConsumers == 4 ? 1 : 2;  // of a thread that finalises

  // For columns.h: fewer widths than FC1's, for FC2 has the shorter part of the time.
  static constexpr int kFineColumns = kTokens < 64 ? kTokens - 16 : kTokens - 32;

  static constexpr int kUnitRows = 64 * kConsumers;
  static constexpr int kRowBlocks = kFc2Rows / kUnitRows;  // units of a token tile
  static constexpr int kSegments = kIntermediate / 64;
  static constexpr int kWeightBytes = kUnitRows * kFc2RowBytes;  // contiguous in memory
  static constexpr int kScaleBytes = kUnitRows * kFc2Groups;     // contiguous in memory
  static constexpr int kSegmentBytes = kTokens * 128;            // tokens of K = 64
  static constexpr int kTokenBytes = kSegments * kSegmentBytes;
  static constexpr int kPieces = kFc2RowBytes / 16;  // 16-byte pieces of a packed row
  static constexpr int kHeaderBytes = 1024;          // of shared memory, before the swizzled tokens

  static constexpr int kFreeBytes = max_smem_bytes(kCtasPerSm) - kHeaderBytes - kTokenBytes;
  static constexpr int kFit = kFreeBytes / (kWeightBytes + kScaleBytes);
  static constexpr int kSlots = kFit < 6 ? kFit : 6;

  static_assert(kUnitRows % 128 == 0 && kFc2Rows % kUnitRows == 0 && kIntermediate % 64 == 0);
  static_assert(kFc2RowBytes % 128 == 64, "neighbouring rows of the packed weights meet different banks");
  static_assert(kTokens % 8 == 0 && kTokens <= 128);
  static_assert(kSlots >= 2);
  static_assert(kConsumers != 4 ||
                    kConsumerThreads * kConsumerRegisters + 128 * kProducerRegisters <= kThreads * kLaunchRegisters,
                "registers move inside the CTA's own share: asking for more would wait for ever");
};

// Announcements of FC1 that complete a token tile: one for 64 of its weight rows.
inline constexpr int kFc1Parts = kFc1Rows / 64;

}  // namespace cake_moe::sm90::fc2

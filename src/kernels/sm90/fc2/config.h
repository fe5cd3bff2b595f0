// Numbers of the FC2 kernel: units of 128 stored weight rows by up to kTokens rows of one expert, all of K = 384. A
// warpgroup multiplies a unit as two subtiles of 64 rows.
#pragma once

#include "kernels/sm90/limits.h"
#include "plan/problem.h"

namespace cake_moe::sm90::fc2 {

inline constexpr int kSubtileRows = 64;
inline constexpr int kUnitSubtiles = 2;

template <int kTokens_>
struct Config {
  static constexpr int kTokens = kTokens_;        // most rows of a token tile
  static constexpr bool kWide = kTokens > 8;      // one CTA fills the SM
  static constexpr bool kWarpMma = kTokens == 8;  // each warp multiplies by itself
  static constexpr int kGroups = kWide ? 4 : 2;   // warpgroups
  static constexpr int kThreads = 128 * kGroups;
  static constexpr int kCtasPerSm = kWide ? 1 : 2;
  static constexpr int kRegisterCtas = kWide ? 1 : 4;  // that registers suffice for: half stay for the finalise
  static constexpr int kBuffers = kWide ? 2 : 1;       // A fragments in flight, as registers allow

  // Token columns of a tile's MMAs: the fewest of kLeastColumns, + kColumnStep, .. that hold its rows. Below 64 the
  // MMAs are not what takes the time.
  static constexpr int kColumnStep = 8;
  static constexpr int kLeastColumns = kTokens < 64 ? kTokens : kTokens - 4 * kColumnStep;

  static constexpr int kUnitRows = kSubtileRows * kUnitSubtiles;
  static constexpr int kRowBlocks = kFc2Rows / kUnitRows;  // units of a token tile
  static constexpr int kSegments = kIntermediate / 64;
  static constexpr int kSubtileBytes = kSubtileRows * kFc2RowBytes;  // contiguous in memory
  static constexpr int kWeightBytes = kUnitRows * kFc2RowBytes;
  static constexpr int kScaleBytes = kUnitRows * kFc2Groups;  // contiguous in memory, rows interleaved
  static constexpr int kSegmentBytes = kTokens * 128;         // tokens of K = 64
  static constexpr int kTokenBytes = kSegments * kSegmentBytes;
  static constexpr int kPieces = kFc2RowBytes / 16;  // 16-byte pieces of a packed row

  // Each warpgroup has a ring of its own: slots of one subtile's weights, and slots of one unit's scales, enough of
  // them that the unit whose scales are overwritten lies before the subtile whose slot is free.
  static constexpr int scale_slots(int slots) { return slots / kUnitSubtiles + 1; }
  static constexpr int ring_bytes(int slots) { return slots * kSubtileBytes + scale_slots(slots) * kScaleBytes; }
  static constexpr int fit(int bytes) {
    int slots = 1;
    while (ring_bytes(slots + 1) <= bytes) ++slots;
    return slots;
  }
  static constexpr int kSlots = fit((max_smem_bytes(kCtasPerSm) - kTokenBytes - 256) / kGroups);
  static constexpr int kScaleSlots = scale_slots(kSlots);

  static_assert(kUnitRows == 128 && kFc2Rows % kUnitRows == 0 && kIntermediate % 128 == 0);
  static_assert(kFc2RowBytes % 128 == 64, "neighbouring rows of the packed weights meet different banks");
  static_assert(kTokens % 8 == 0 && kTokens <= 128);
  static_assert(kSlots >= 2);
};

// Tiles a CTA from which whole tiles are dealt round robin, so that the tiles of an expert run at the same time and
// share its weights in L2.
inline constexpr int kRoundRobinTiles = 8;

}  // namespace cake_moe::sm90::fc2

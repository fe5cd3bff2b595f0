// Numbers of the experts kernel: the whole decode call but the finalise, one CTA an SM, token tiles of at most 8 rows.
#pragma once

#include "kernels/sm90/limits.h"
#include "plan/problem.h"
#include "plan/tables.h"

namespace cake_moe::sm90::experts {

inline constexpr int kMaxTokens = kFusedTokens;
inline constexpr int kMaxRoutes = kMaxTokens * kTopK;
inline constexpr int kTokens = 8;  // most rows of a token tile

// Warps: two groups of consumers, then one warp that streams weights and one that brings the tokens.
inline constexpr int kGroups = 2;
inline constexpr int kGroupWarps = 8;
inline constexpr int kConsumerWarps = kGroups * kGroupWarps;
inline constexpr int kWeightWarp = kConsumerWarps;
inline constexpr int kTokenWarp = kConsumerWarps + 1;
inline constexpr int kThreads = 32 * (kConsumerWarps + 2);
inline constexpr int kCtasPerSm = 1;

// Before the stream starts, the first group routes and the second one quantises.
inline constexpr int kRouteThreads = 32 * kGroupWarps;
inline constexpr int kRouteExperts = kExperts / kRouteThreads + 1;  // of a thread's part of the scan
inline constexpr int kBlocksOfToken = kHidden / kGroup;
static_assert(kExperts % kRouteExperts == 0);
static_assert(kBlocksOfToken % 32 == 0, "a warp quantises 32 blocks of one token");

// FC1: a unit is one block of 32 stored rows (16 features) of a token tile. An item is up to four neighbouring units;
// each group multiplies one half of K. A stage is K = 256 of one half: 128 bytes of each weight row.
inline constexpr int kFc1UnitRows = 32;
inline constexpr int kFc1Units = kFc1Rows / kFc1UnitRows;
inline constexpr int kFc1ItemUnits = 4;
inline constexpr int kSliceK = kHidden / kGroups;
inline constexpr int kStageK = 256;
inline constexpr int kStages = kSliceK / kStageK;
inline constexpr int kFc1ItemSlots = kGroups * kStages;
inline constexpr int kFc1BoxBytes = kFc1UnitRows * kStageK / 2;      // one unit's weights of a stage
inline constexpr int kFc1ScaleBytes = 128 * kStageK / kGroup;        // of 128 rows, contiguous in memory
inline constexpr int kFc1TokenBytes = kStageK * 2;                   // of one token
inline constexpr int kFc1TokenPitch = kFc1TokenBytes + 16;           // neighbouring tokens meet different banks
static_assert(kSliceK % kStageK == 0);
static_assert(kFc1ItemUnits * 2 == kGroupWarps, "a warp has 16 rows of an item");

// FC2: a unit is 64 stored rows of a token tile, all of K. A slot holds up to two of them, in one block of 128 rows.
inline constexpr int kFc2UnitRows = 64;
inline constexpr int kFc2Units = kFc2Rows / kFc2UnitRows;
inline constexpr int kFc2SlotUnits = 2;
inline constexpr int kFc2Segments = kIntermediate / 64;
inline constexpr int kFc2UnitBytes = kFc2UnitRows * kFc2RowBytes;    // contiguous in memory
inline constexpr int kFc2ScaleBytes = 128 * kFc2Groups;              // of 128 rows, contiguous in memory
inline constexpr int kFc2Pieces = kFc2RowBytes / 16;                 // 16-byte pieces of a packed row
inline constexpr int kFc2TokenPitch = kIntermediate * 2 + 16;
inline constexpr int kHiddenTiles = 2;                               // token tiles of FC2 in shared memory
static_assert(kFc2SlotUnits * 4 == kGroupWarps, "a warp has 16 rows of a slot");
static_assert(kFc2RowBytes % 128 == 64, "neighbouring rows of the packed weights meet different banks");

inline constexpr int kSlots = 7;
// The two warps that add the halves of an item meet at named barriers that the next item uses again: neither may get
// an item ahead of the other, and the ring, which fills in order, holds both to less than one.
static_assert(kSlots < kFc1ItemSlots);

}  // namespace cake_moe::sm90::experts

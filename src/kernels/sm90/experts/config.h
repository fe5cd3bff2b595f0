// Numbers of the experts kernel: the whole decode call but the finalise, one CTA an SM, token tiles of at most 8 rows.
#pragma once

#include "kernels/sm90/limits.h"
#include "plan/problem.h"
#include "plan/tables.h"

namespace cake_moe::sm90::experts {

inline constexpr int kMaxTokens = kFusedTokens;
inline constexpr int kMaxRoutes = kMaxTokens * kTopK;
inline constexpr int kTokens = 8;  // most rows of a token tile

// Warps: two groups of consumers, a producer for each, and one that brings FC2's tokens.
inline constexpr int kGroups = 2;
inline constexpr int kGroupWarps = 8;
inline constexpr int kConsumerWarps = kGroups * kGroupWarps;
inline constexpr int kHiddenWarp = kConsumerWarps + kGroups;
inline constexpr int kThreads = 32 * (kHiddenWarp + 1);
inline constexpr int kCtasPerSm = 1;

// Before the stream starts, the first group routes and the second one quantises.
inline constexpr int kRouteThreads = 32 * kGroupWarps;
inline constexpr int kRouteExperts = kExperts / kRouteThreads + 1;  // of a thread's part of the scan
inline constexpr int kBlocksOfToken = kHidden / kGroup;
static_assert(kExperts % kRouteExperts == 0);

// Tokens in memory (blocks.cuh): K = 128 as bytes, and 16 bytes for each of four lanes.
inline constexpr int kChunkK = 128;
inline constexpr int kChunkBytes = kChunkK + 4 * 16;

// FC1: a unit is one block of 32 stored rows (16 features) of a token tile. An item is up to four neighbouring units;
// each group multiplies one half of K. A stage is K = 256 of one half: 128 bytes of each weight row.
inline constexpr int kFc1UnitRows = 32;
inline constexpr int kFc1Units = kFc1Rows / kFc1UnitRows;
inline constexpr int kFc1ItemUnits = 4;
inline constexpr int kSliceK = kHidden / kGroups;
inline constexpr int kStageK = 256;
inline constexpr int kStages = kSliceK / kStageK;
inline constexpr int kStageBlocks = kStageK / kGroup;
inline constexpr int kStageChunks = kStageK / kChunkK;
inline constexpr int kStageTokenBytes = kStageChunks * kChunkBytes;  // of one token
inline constexpr int kFc1Chunks = kHidden / kChunkK;                 // of one token
inline constexpr int kFc1BoxBytes = kFc1UnitRows * kStageK / 2;      // one unit's weights of a stage
inline constexpr int kFc1ScaleBytes = 128 * kStageK / kGroup;        // of 128 rows, contiguous in memory
static_assert(kSliceK % kStageK == 0);
static_assert(kFc1ItemUnits * 2 == kGroupWarps, "a warp has 16 rows of an item");

// FC2: a unit is 64 stored rows of a token tile, all of K. A slot holds up to two of them, in one block of 128 rows.
inline constexpr int kFc2UnitRows = 64;
inline constexpr int kFc2Units = kFc2Rows / kFc2UnitRows;
inline constexpr int kFc2SlotUnits = 2;
inline constexpr int kFc2Chunks = kIntermediate / kChunkK;
inline constexpr int kFc2UnitBytes = kFc2UnitRows * kFc2RowBytes;  // contiguous in memory
inline constexpr int kFc2ScaleBytes = 128 * kFc2Groups;            // of 128 rows, contiguous in memory
inline constexpr int kFc2Pieces = kFc2RowBytes / 16;               // 16-byte pieces of a packed row
inline constexpr int kHiddenTiles = 2;                             // token tiles of FC2 in shared memory
static_assert(kFc2SlotUnits * 4 == kGroupWarps, "a warp has 16 rows of a slot");
static_assert(kFc2RowBytes % 128 == 64, "neighbouring rows of the packed weights meet different banks");

inline constexpr int kGroupSlots = 3;  // each group has a ring of its own

// What a unit of a tile costs, by its pairs of tokens: from the times of calls with one and with eight rows a tile.
constexpr int unit_cost(int rows) { return 10 + 3 * ((rows - 1) / 2); }

// A CTA's share of FC2 that is fetched to the L2 cache while its ring is still full of FC1.
inline constexpr int kPrefetchBytes = 128 * 1024;

}  // namespace cake_moe::sm90::experts

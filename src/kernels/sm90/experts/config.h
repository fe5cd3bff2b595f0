// Numbers of the experts kernel: the whole decode call but the finalise, one CTA an SM, token tiles of at most 8 rows.
#pragma once

#include "kernels/sm90/fc2/config.h"
#include "kernels/sm90/limits.h"
#include "plan/problem.h"
#include "plan/tables.h"

namespace cake_moe::sm90::experts {

inline constexpr int kMaxTokens = kFusedTokens;
inline constexpr int kMaxRoutes = kMaxTokens * kTopK;
inline constexpr int kTokens = 8;  // most rows of a token tile
inline constexpr int kMaxCtas = 1024;

// Warps: one that brings FC2's tokens, two groups of consumers, and for each of them one that brings weights and one
// that brings FC1's tokens. Thread 0, which polls the grid barrier for the CTA, belongs to the first: it has nothing
// else to do.
inline constexpr int kGroups = 2;
inline constexpr int kGroupWarps = 8;
inline constexpr int kConsumerWarps = kGroups * kGroupWarps;
inline constexpr int kHiddenWarp = 0;
inline constexpr int kConsumerWarp = kHiddenWarp + 1;
inline constexpr int kWeightWarp = kConsumerWarp + kConsumerWarps;
inline constexpr int kTokenWarp = kWeightWarp + kGroups;
inline constexpr int kThreads = 32 * (kTokenWarp + kGroups);
inline constexpr int kCtasPerSm = 1;

// Calls of few tokens: every CTA quantises all of them, and a thread of the weight warps routes one route. Weights and
// FC1 then wait for no other CTA.
inline constexpr int kFewTokens = 4;
inline constexpr int kFewRoutes = kFewTokens * kTopK;
static_assert(kFewRoutes == 32 * kGroups);

// Else, before the stream starts, the first group routes and the second quantises its share.
inline constexpr int kRouteThreads = 32 * kGroupWarps;
inline constexpr int kRouteExperts = kExperts / kRouteThreads + 1;  // of a thread's part of the scan
static_assert(kExperts % kRouteExperts == 0);

// FC1: a unit is one block of 32 stored rows (16 features) of a token tile. An item is up to four neighbouring units;
// each group multiplies one half of K. A stage is K = 256 of one half: 128 bytes of each weight row.
inline constexpr int kFc1UnitRows = 32;
inline constexpr int kFc1Units = kFc1Rows / kFc1UnitRows;
inline constexpr int kFc1ItemUnits = 4;
inline constexpr int kSliceK = kHidden / kGroups;
inline constexpr int kStageK = 256;
inline constexpr int kStages = kSliceK / kStageK;
inline constexpr int kStageBlocks = kStageK / kGroup;
inline constexpr int kFc1BoxBytes = kFc1UnitRows * kStageK / 2;  // one unit's weights of a stage
inline constexpr int kFc1ScaleBytes = 128 * kStageK / kGroup;    // of 128 rows, contiguous in memory
static_assert(kSliceK % kStageK == 0);
static_assert(kFc1ItemUnits * 2 == kGroupWarps, "a warp has 16 rows of an item");

// FC1's tokens in shared memory: K segments and rows are padded so that the 16-byte pieces which ldmatrix reads of
// eight rows, and the words which quantising lanes write to eight segments, meet different banks.
inline constexpr int kSegmentPitch = 128 + 16;
inline constexpr int kStagePitch = kStageK / 64 * kSegmentPitch;
inline constexpr int kTokenPitch = kStagePitch + 16;                      // of a ring's slot
inline constexpr int kInputPitch = kGroups * kStages * kStagePitch + 16;  // of few tokens: all of K

// FC2: a unit is 64 stored rows of a token tile, all of K. A slot holds up to two of them, in one block of 128 rows.
using Fc2 = fc2::Config<kTokens>;
inline constexpr int kFc2UnitRows = 64;
inline constexpr int kFc2Units = kFc2Rows / kFc2UnitRows;
inline constexpr int kFc2SlotUnits = Fc2::kUnitRows / kFc2UnitRows;
inline constexpr int kFc2UnitBytes = kFc2UnitRows * kFc2RowBytes;  // contiguous in memory
inline constexpr int kHiddenTiles = 2;                             // token tiles of FC2 in shared memory
static_assert(kFc2SlotUnits * 4 == kGroupWarps, "a warp has 16 rows of a slot");

inline constexpr int kGroupSlots = 3;  // each group has a ring of its own

// Slots of a group that are requested before the grid barrier, where the tokens come from all CTAs. With more of them
// under way the barrier, and the tokens behind it, would wait for the memory to deliver the weights first.
inline constexpr int kEarlySlots = 1;

}  // namespace cake_moe::sm90::experts

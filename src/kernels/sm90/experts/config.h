// Numbers of the experts kernel: the whole call of few tokens, one CTA an SM, token tiles of at most 8 rows.
#pragma once

#include "kernels/sm90/fc2/config.h"
#include "kernels/sm90/limits.h"
#include "plan/problem.h"
#include "plan/tables.h"

namespace cake_moe::sm90::experts {

inline constexpr int kMaxTokens = kFewTokens;
inline constexpr int kMaxRoutes = kMaxTokens * kTopK;
inline constexpr int kTokens = 8;  // most rows of a token tile
inline constexpr int kMaxCtas = 1024;

// Warps: one that brings FC2's tokens, two groups of consumers, for each of them one that brings weights, and two that
// finalise. Thread 0, which polls the grid barrier for the CTA, belongs to the first: it has nothing else to do.
inline constexpr int kGroups = 2;
inline constexpr int kGroupWarps = 8;
inline constexpr int kConsumerWarps = kGroups * kGroupWarps;
inline constexpr int kHiddenWarp = 0;
inline constexpr int kConsumerWarp = kHiddenWarp + 1;
inline constexpr int kWeightWarp = kConsumerWarp + kConsumerWarps;
inline constexpr int kFinalizeWarp = kWeightWarp + kGroups;
inline constexpr int kFinalizeWarps = 2;
inline constexpr int kThreads = 32 * (kFinalizeWarp + kFinalizeWarps);
inline constexpr int kCtasPerSm = 1;

static_assert(kMaxRoutes == 32 * kGroups, "a thread of the weight warps routes one route");

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
inline constexpr int kInputPitch = kGroups * kStages * kStagePitch + 16;  // of a token

// FC2: a unit is 64 stored rows of a token tile, all of K. A slot holds up to two of them, in one block of 128 rows.
using Fc2 = fc2::Config<kTokens>;
inline constexpr int kFc2UnitRows = 64;
inline constexpr int kFc2Units = kFc2Rows / kFc2UnitRows;
inline constexpr int kFc2SlotUnits = Fc2::kUnitRows / kFc2UnitRows;
inline constexpr int kFc2UnitBytes = kFc2UnitRows * kFc2RowBytes;  // contiguous in memory
inline constexpr int kHiddenTiles = 2;                             // token tiles of FC2 in shared memory
static_assert(kFc2SlotUnits * 4 == kGroupWarps, "a warp has 16 rows of a slot");

inline constexpr int kGroupSlots = 3;  // each group has a ring of its own

}  // namespace cake_moe::sm90::experts

// Every number of the CPU backend.
#pragma once

#include <bit>
#include <cstdint>

#include "plan/problem.h"
#include "plan/workspace.h"

namespace cake_moe::cpu {

static_assert(std::endian::native == std::endian::little);  // nibbles are taken from words and packed into them

// A dot product advances in steps of one 64-byte cache line of packed weights. Virtual lane j of 16 takes the
// half-group j of every step, whatever the width of the machine's vectors: this fixes the order of all sums.
inline constexpr int kStepBytes = 64;
inline constexpr int kStepElements = 2 * kStepBytes;
inline constexpr int kStepGroups = kStepElements / kGroup;
inline constexpr int kHalfGroupBytes = kGroup / 2 / 2;
inline constexpr int kLanes = kStepBytes / kHalfGroupBytes;
static_assert(kLanes == 16 && kLanes == 2 * kStepGroups);

inline constexpr int kFc1Steps = kFc1RowBytes / kStepBytes;
inline constexpr int kFc2Steps = kFc2RowBytes / kStepBytes;
static_assert(kFc1Steps * kStepBytes == kFc1RowBytes && kFc2Steps * kStepBytes == kFc2RowBytes);

// 128 stored rows share the cache lines of their interleaved scales. 16 bytes of them hold 4 groups of the 4 rows
// r, r + 32, r + 64, r + 96: these are computed together, for up to kBlockTokens tokens at a time.
inline constexpr int kTileRows = 128;
inline constexpr int kQuadRows = 4;
inline constexpr int kQuads = kTileRows / kQuadRows;
inline constexpr int kQuadGroups = 4;
inline constexpr int kQuadScaleBytes = kQuadRows * kQuadGroups;
inline constexpr int kScaleChunkBytes = kTileRows * kQuadGroups;  // scales of 128 rows and 4 groups
inline constexpr int kBlockTokens = 4;
static_assert(kQuadRows * kBlockTokens == kLanes);  // results of a quad fill one vector of the epilogues
static_assert(kStepGroups == 2 * kQuadGroups);
static_assert(kFc1Rows % kTileRows == 0 && kFc2Rows % kTileRows == 0);

inline constexpr int kFc1Tiles = kFc1Rows / kTileRows;
inline constexpr int kFc2Tiles = kFc2Rows / kTileRows;
inline constexpr int kTileFeatures = kTileRows / 2;
static_assert(kTileFeatures == kQuadRows * kGroup);  // each quarter of a tile requantises to one block

// The largest partial sum of a half-group, of biased codes 0..24 with codes of magnitude 12, must fit 16 bits for AVX2.
inline constexpr int kCodeBias = 12;
static_assert(4 * (2 * kCodeBias) * 12 < 32768);

// Most work units that a worker draws at once, and the draws it should get at least, so that workers finish together.
// Neighbouring tiles of FC2 are small, and the prefetches run ahead into the next one.
inline constexpr int kFc1Draw = kFc1Tiles;
inline constexpr int kFc2Draw = kFc2Tiles;
inline constexpr int kFinalizeDraw = 4;
inline constexpr int kQuantizeDraw = 16;
inline constexpr int kDrawsPerWorker = 8;
inline constexpr int kQuantizeBlocks = kFc1Groups;  // blocks of 16 elements, one token

inline constexpr int kFinalizeColumns = 256;  // columns summed together, so that the sums stay in the first-level cache
static_assert(kHidden % kFinalizeColumns == 0);

}  // namespace cake_moe::cpu

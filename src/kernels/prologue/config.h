// Numbers of the prologue: CTAs of one cluster route, all others quantise.
#pragma once

#include "plan/problem.h"
#include "plan/tables.h"

namespace cake_moe::prologue {

inline constexpr int kThreads = kPrologueThreads;
inline constexpr int kWarps = kThreads / 32;
inline constexpr int kItemElements = 512;  // a warp quantises 32 blocks at a time
inline constexpr int kItemsPerToken = kHidden / kItemElements;
static_assert(kItemElements == 32 * kGroup);
static_assert(kHidden % kItemElements == 0);

// fp16 image of an item in shared memory: segments of 128 bytes, padded so that the writes of a warp meet all banks.
inline constexpr int kSegmentPitch = 128 + 16;
inline constexpr int kItemImageBytes = kItemElements * 2 / 128 * kSegmentPitch;

}  // namespace cake_moe::prologue

// Numbers of the finalise stage. The plan chooses the threads of a CTA: a divisor of kTokenThreads, or kRingThreads.
#pragma once

#include "plan/tables.h"

namespace cake_moe::finalize {

inline constexpr int kColumns = 8;                        // a thread, one 16-byte access
inline constexpr int kTokenThreads = kHidden / kColumns;  // threads that cover a token
inline constexpr int kBatch = 8;                          // rows that a thread has in flight
inline constexpr int kBatches = kTopK / kBatch;           // of a token
inline constexpr int kCtasPerSm = 2;
static_assert(kTopK % kBatch == 0);

// Few tokens, by narrow CTAs.
inline constexpr int kFewTokens = 4;
inline constexpr int kFewThreads = kFinalizeNarrowThreads;

// Large calls: a persistent CTA, whose last warp fills a ring of batches.
inline constexpr int kRingThreads = kTokenThreads + 32;
inline constexpr int kRingSlots = 4;
inline constexpr int kRowBytes = kHidden * 2;
static_assert(kRingThreads == kFinalizeRingThreads && kTokenThreads == kFinalizeTokenThreads);
static_assert(kTokenThreads % 32 == 0 && kBatch <= 32);

}  // namespace cake_moe::finalize

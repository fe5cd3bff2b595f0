// Numbers of the finalise stage. Plain C++: the plan reads threads_of.
#pragma once

#include "plan/problem.h"

namespace cake_moe::finalize {

inline constexpr int kColumns = 8;                        // a thread, one 16-byte access
inline constexpr int kTokenThreads = kHidden / kColumns;  // threads that cover a token
inline constexpr int kWideThreads = kTokenThreads;        // a CTA a token
inline constexpr int kNarrowThreads = 64;                 // few tokens: several CTAs share a token
inline constexpr int kBatch = 8;                          // rows that a thread has in flight
inline constexpr int kCtasPerSm = 2;
static_assert(kTopK % kBatch == 0);
static_assert(kTokenThreads % kNarrowThreads == 0 && kNarrowThreads >= kTopK);

constexpr int threads_of(int num_tokens) { return num_tokens < 64 ? kNarrowThreads : kWideThreads; }

}  // namespace cake_moe::finalize

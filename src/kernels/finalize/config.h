// Numbers of the finalise stage. The plan chooses the threads of a CTA, a divisor of kTokenThreads.
#pragma once

#include "plan/problem.h"

namespace cake_moe::finalize {

inline constexpr int kColumns = 8;                        // a thread, one 16-byte access
inline constexpr int kTokenThreads = kHidden / kColumns;  // threads that cover a token
inline constexpr int kBatch = 8;                          // rows that a thread has in flight
inline constexpr int kCtasPerSm = 2;
static_assert(kTopK % kBatch == 0);

}  // namespace cake_moe::finalize

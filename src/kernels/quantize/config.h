// Numbers of the quantise kernel.
#pragma once

#include "plan/problem.h"

namespace cake_moe::quantize {

inline constexpr int kThreads = 256;
inline constexpr int kCtasPerSm = 8;
inline constexpr int kBlockBytes = kGroup * 2;   // bf16 input of a block, one thread's work
inline constexpr int kPackedBytes = kGroup / 2;  // e2m1 codes of a block
static_assert(kBlockBytes == 2 * 16, "a block is two 16-byte loads");
static_assert(kPackedBytes == 8, "a block's codes are one 8-byte store");
static_assert(kThreads * kCtasPerSm <= 2048, "resident threads of an SM");

}  // namespace cake_moe::quantize

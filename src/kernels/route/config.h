// Numbers of the route stage. Plain C++: the plan reads cluster_of.
#pragma once

#include "plan/problem.h"

namespace cake_moe::route {

inline constexpr int kThreads = 512;
inline constexpr int kWarps = kThreads / 32;
inline constexpr int kWideCluster = 8;       // CTAs that share the routes of a large call
inline constexpr int kSingleCtaTokens = 64;  // up to here one CTA is enough
static_assert(kExperts <= 2 * kThreads, "the scan gives a thread two experts");

constexpr int cluster_of(int num_tokens) { return num_tokens <= kSingleCtaTokens ? 1 : kWideCluster; }

}  // namespace cake_moe::route

// Numbers of the route stage. The plan chooses how many CTAs of a cluster share the routes.
#pragma once

#include "plan/problem.h"
#include "plan/tables.h"

namespace cake_moe::route {

inline constexpr int kThreads = 512;
inline constexpr int kWarps = kThreads / 32;
inline constexpr int kMostCtas = kRouteCluster;  // of a cluster
static_assert(kExperts <= 2 * kThreads, "the scan gives a thread two experts");

}  // namespace cake_moe::route

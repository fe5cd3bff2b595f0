// Numbers of the route stage. The plan chooses how many CTAs of a cluster share the routes.
#pragma once

#include "plan/problem.h"
#include "plan/tables.h"

namespace cake_moe::route {

inline constexpr int kMostCtas = kRouteCluster;  // of a cluster

}  // namespace cake_moe::route

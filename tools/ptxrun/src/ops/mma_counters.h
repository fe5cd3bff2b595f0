#pragma once

#include <string>

#include "exec/machine.h"

namespace ptxrun::ops {

// One matrix step in the launch's counters, under a name such as "mma.m16n8k16.f16".
inline void count_step(Warp& warp, const std::string& name) { ++warp.machine.counters(*warp.cta.grid).mma_steps[name]; }

}  // namespace ptxrun::ops

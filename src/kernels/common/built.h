// Which GPU architectures this source tree has kernels of the whole operator for.
#pragma once

#include <array>

#include "plan/problem.h"

namespace cake_moe {

// fused_moe runs on these (and on the CPU); quantize_nvfp4 runs on every architecture of the fat binary.
inline constexpr std::array<Arch, 0> kFusedMoeArchs{};

}  // namespace cake_moe

// Which GPU architectures this build has kernels of the whole operator for.
#pragma once

#include <array>

#include "build_config.h"
#include "plan/problem.h"

namespace cake_moe {

// fused_moe runs on these (and on the CPU); quantize_nvfp4 runs on every architecture of the fat binary.
#if CAKE_MOE_SM90A
inline constexpr std::array<Arch, 1> kFusedMoeArchs{Arch::kSm90a};
#else
inline constexpr std::array<Arch, 0> kFusedMoeArchs{};
#endif

}  // namespace cake_moe

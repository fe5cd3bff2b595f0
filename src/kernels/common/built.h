// Which GPU architectures this build has kernels of; of each, those of the whole operator.
#pragma once

#include <string_view>

#include "build_config.h"
#include "plan/problem.h"

namespace cake_moe {

inline constexpr Arch kGpuArchs[] = {Arch::kSm90a, Arch::kSm100a, Arch::kSm103a};

constexpr bool is_built(Arch arch) {
  return std::string_view(CAKE_MOE_CUDA_ARCHS).find(arch_name(arch)) != std::string_view::npos;
}

}  // namespace cake_moe

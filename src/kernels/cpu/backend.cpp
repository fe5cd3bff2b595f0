#include "kernels/cpu/backend.h"

#include <stdexcept>

#include "kernels/cpu/stages.h"

namespace cake_moe::cpu {

void fused_moe(const MoeParams& params, const Plan& plan, const ThreadPool& pool) {
  const Call call{params, plan, pool, kernels(selected_isa())};
  for (int i = 0; i < plan.num_launches; ++i) {
    const Launch& launch = plan.launches[i];
    switch (launch.stage) {
      case Stage::kQuantize:
        quantize_stage(call, launch);
        break;
      case Stage::kRoute:
        route_stage(call, launch);
        break;
      case Stage::kFc1:
        fc1_stage(call, launch);
        break;
      case Stage::kFc2:
        fc2_stage(call, launch);
        break;
      case Stage::kFinalize:
        finalize_stage(call, launch);
        break;
      case Stage::kPrologue:
      case Stage::kExperts:
        throw std::logic_error("the CPU backend has no fused stages");
    }
  }
}

}  // namespace cake_moe::cpu

#include "kernels/sm100/backend.h"

#include "kernels/finalize/launch.h"
#include "kernels/prologue/launch.h"
#include "kernels/sm100/experts/launch.h"

namespace cake_moe::sm100 {

const char* load_kernels() {
  for (const auto load : {prologue::load, experts::load, finalize::load}) {
    if (const char* error = load()) return error;
  }
  return nullptr;
}

const char* run_launch(const MoeParams& params, const Plan& plan, int index, void* stream) {
  const Launch& stage = plan.launches[index];
  switch (stage.stage) {
    case Stage::kPrologue:
      return prologue::run(params, plan, stage, plan.launches[index + 1].tile_tokens, stream);
    case Stage::kExperts:
      return experts::run(params, plan, stage, stream);
    case Stage::kFinalize:
      return finalize::run(params, plan, stage, stream);
    default:
      return "sm_100a: the plan has a stage without a kernel";
  }
}

}  // namespace cake_moe::sm100

#include "kernels/sm90/backend.h"

#include "kernels/prologue/launch.h"
#include "kernels/sm90/experts/launch.h"
#include "kernels/sm90/fc1/launch.h"
#include "kernels/sm90/fc2/launch.h"
#include "kernels/sm90/routed_fc1/launch.h"

namespace cake_moe::sm90 {
namespace {

// Rows of a token tile: the route stage cuts the experts' rows into the tiles that FC1 and FC2 take.
int tile_tokens_of(const Plan& plan) {
  for (int i = 0; i < plan.num_launches; ++i) {
    if (plan.launches[i].stage == Stage::kFc1) return plan.launches[i].tile_tokens;
  }
  return 0;
}

}  // namespace

const char* load_kernels() {
  for (const auto load : {experts::load, prologue::load, fc1::load, routed_fc1::load, fc2::load}) {
    if (const char* error = load()) return error;
  }
  return nullptr;
}

const char* run_launch(const MoeParams& params, const Plan& plan, int index, void* stream) {
  const Launch& stage = plan.launches[index];
  switch (stage.stage) {
    case Stage::kExperts:
      return experts::run(params, plan, stage, stream);
    case Stage::kPrologue:
      return prologue::run(params, plan, stage, tile_tokens_of(plan), stream);
    case Stage::kRoutedFc1:
      return routed_fc1::run(params, plan, stage, stream);
    case Stage::kFc1:
      return fc1::run(params, plan, stage, stream);
    case Stage::kFc2:
      return fc2::run(params, plan, stage, stream);
    default:
      return "sm_90a: the plan has a stage without a kernel";
  }
}

}  // namespace cake_moe::sm90

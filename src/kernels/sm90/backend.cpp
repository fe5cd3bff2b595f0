#include "kernels/sm90/backend.h"

#include "kernels/finalize/launch.h"
#include "kernels/prologue/launch.h"
#include "kernels/sm90/fc1/launch.h"
#include "kernels/sm90/fc2/launch.h"

namespace cake_moe::sm90 {
namespace {

const char* run_stage(const MoeParams& params, const Plan& plan, const Launch& stage, int tile_tokens, void* stream) {
  switch (stage.stage) {
    case Stage::kPrologue:
      return prologue::run(params, plan, stage, tile_tokens, stream);
    case Stage::kFc1:
      return fc1::run(params, plan, stage, stream);
    case Stage::kFc2:
      return fc2::run(params, plan, stage, stream);
    case Stage::kFinalize:
      return finalize::run(params, plan, stage, stream);
    default:
      return "sm_90a: the plan has a stage without a kernel";
  }
}

// Rows of a token tile: the route stage cuts the experts' rows into the tiles that FC1 and FC2 take.
int tile_tokens_of(const Plan& plan) {
  for (int i = 0; i < plan.num_launches; ++i) {
    if (plan.launches[i].stage == Stage::kFc1) return plan.launches[i].tile_tokens;
  }
  return 0;
}

}  // namespace

const char* load_kernels() {
  for (const auto load : {prologue::load, fc1::load, fc2::load, finalize::load}) {
    if (const char* error = load()) return error;
  }
  return nullptr;
}

const char* fused_moe(const MoeParams& params, const Plan& plan, const Device& device, void* stream) {
  if (device.major != 9 || device.minor != 0) return "sm_90a: the device is not of compute capability 9.0";
  const int tile_tokens = tile_tokens_of(plan);
  for (int i = 0; i < plan.num_launches; ++i) {
    if (const char* error = run_stage(params, plan, plan.launches[i], tile_tokens, stream)) return error;
  }
  return nullptr;
}

}  // namespace cake_moe::sm90

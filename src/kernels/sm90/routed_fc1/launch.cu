#include "kernels/sm90/routed_fc1/launch.h"

#include "kernels/common/launch.h"
#include "kernels/common/tensor_map.h"
#include "kernels/prologue/launch.h"
#include "kernels/sm90/fc1/launch.h"
#include "kernels/sm90/routed_fc1/kernel.cuh"

namespace cake_moe::sm90::routed_fc1 {
namespace {

using C = fc1::Config<8>;

}  // namespace

const char* load() {
  cudaError_t status =
      cudaFuncSetAttribute(cake_moe_sm90_routed_fc1<C>, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared<C>));
  if (status != cudaSuccess) return cudaGetErrorString(status);
  int ctas = 0;
  status =
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&ctas, cake_moe_sm90_routed_fc1<C>, C::kThreads, sizeof(Shared<C>));
  if (status != cudaSuccess) return cudaGetErrorString(status);
  return ctas >= C::kCtasPerSm ? nullptr : "sm_90a routed FC1: an SM cannot hold the CTAs that must run together";
}

const char* run(const MoeParams& params, const Plan& plan, const Launch& stage, void* stream) {
  if (stage.tile_tokens != C::kTokens || stage.tile_rows != C::kTileRows || stage.threads != C::kThreads) {
    return "sm_90a routed FC1: the plan's tile or threads are not those of the kernel";
  }
  CUtensorMap weights;
  if (const char* error = encode_byte_map(&weights, params.fc1_weights, kFc1RowBytes, int64_t{kExperts} * kFc1Rows,
                                          C::kStageK / 2, C::kTileRows)) {
    return error;
  }
  const LaunchShape shape = {.grid = static_cast<int>(stage.grid),
                             .threads = stage.threads,
                             .smem_bytes = sizeof(Shared<C>),
                             .pdl = stage.pdl,
                             .cooperative = true};
  return launch(cake_moe_sm90_routed_fc1<C>, shape, static_cast<cudaStream_t>(stream),
                prologue::route_args_of(params, plan, C::kTokens), prologue::quantize_args_of(params, plan),
                params.num_tokens * prologue::kItemsPerToken, fc1::args_of(params, plan), weights);
}

}  // namespace cake_moe::sm90::routed_fc1

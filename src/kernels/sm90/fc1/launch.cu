#include "kernels/sm90/fc1/launch.h"

#include "kernels/common/launch.h"
#include "kernels/common/tensor_map.h"
#include "kernels/sm90/fc1/kernel.cuh"
#include "kernels/sm90/instances.h"

namespace cake_moe::sm90::fc1 {
namespace {

constexpr const char* kMismatch = "sm_90a FC1: the plan's tile or threads are not those of the instance";

template <typename C>
const char* load_instance() {
  const cudaError_t status =
      cudaFuncSetAttribute(cake_moe_sm90_fc1<C>, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared<C>));
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}

template <typename C>
const char* run_instance(const MoeParams& params, const Args& args, const Launch& stage, cudaStream_t stream) {
  if (stage.tile_rows != C::kTileRows || stage.threads != C::kThreads) return kMismatch;
  CUtensorMap weights;
  if (const char* error = encode_byte_map(&weights, params.fc1_weights, kFc1RowBytes, int64_t{kExperts} * kFc1Rows,
                                          C::kStageK / 2, C::kBoxRows)) {
    return error;
  }
  const LaunchShape shape = {.grid = static_cast<int>(stage.grid),
                             .threads = stage.threads,
                             .smem_bytes = sizeof(Shared<C>),
                             .pdl = stage.pdl};
  return launch(cake_moe_sm90_fc1<C>, shape, stream, args, weights);
}

}  // namespace

Args args_of(const MoeParams& params, const Plan& plan) {
  const auto section = [&](Section name) { return params.workspace + plan.workspace[name].offset; };
  return {
      .scales = params.fc1_scales,
      .x_half = section(Section::kXHalf),
      .row_route = reinterpret_cast<const int32_t*>(section(Section::kRowRoute)),
      .tiles = reinterpret_cast<int4*>(section(Section::kTiles)),
      .tile_count = reinterpret_cast<const int32_t*>(section(Section::kTileCount)),
      .alpha = params.fc1_alpha,
      .beta = params.beta,
      .linear_beta = params.linear_beta,
      .encode = params.hidden_encode,
      .hq = section(Section::kHq),
      .hs = section(Section::kHs),
  };
}

const char* load() {
  return for_each_tile(TokenTiles{}, [&]<int kTokens>() -> const char* { return load_instance<Config<kTokens>>(); });
}

const char* run(const MoeParams& params, const Plan& plan, const Launch& stage, void* stream) {
  const Args args = args_of(params, plan);
  return for_tile(TokenTiles{}, stage.tile_tokens, [&]<int kTokens>() -> const char* {
    return run_instance<Config<kTokens>>(params, args, stage, static_cast<cudaStream_t>(stream));
  });
}

}  // namespace cake_moe::sm90::fc1

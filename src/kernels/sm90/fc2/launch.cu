#include "kernels/sm90/fc2/launch.h"

#include "kernels/common/launch.h"
#include "kernels/finalize/args.h"
#include "kernels/sm90/fc2/kernel.cuh"
#include "kernels/sm90/instances.h"

namespace cake_moe::sm90::fc2 {

const char* load() {
  return for_each_tile(TokenTiles{}, [&]<int kTokens>() -> const char* {
    using C = Config<kTokens>;
    const cudaError_t status =
        cudaFuncSetAttribute(cake_moe_sm90_fc2<C>, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes<C>);
    return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
  });
}

const char* run(const MoeParams& params, const Plan& plan, const Launch& stage, void* stream) {
  const auto section = [&](Section name) { return params.workspace + plan.workspace[name].offset; };
  const Args args = {
      .weights = params.fc2_weights,
      .scales = params.fc2_scales,
      .tiles = reinterpret_cast<const int4*>(section(Section::kTiles)),
      .tile_count = reinterpret_cast<const int32_t*>(section(Section::kTileCount)),
      .work_counter = reinterpret_cast<uint32_t*>(section(Section::kWorkCounter)),
      .alpha = params.fc2_alpha,
      .hq = section(Section::kHq),
      .hs = section(Section::kHs),
      .y = reinterpret_cast<uint16_t*>(section(Section::kY)),
      .progress = reinterpret_cast<Progress*>(section(Section::kProgress)),
      .finalize = finalize::args_of(params, plan),
      .num_tokens = params.num_tokens,
  };
  return for_tile(TokenTiles{}, stage.tile_tokens, [&]<int kTokens>() -> const char* {
    using C = Config<kTokens>;
    if (stage.tile_rows != C::kUnitRows || stage.threads != C::kThreads) {
      return "sm_90a FC2: the plan's tile or threads are not those of the instance";
    }
    const LaunchShape shape = {
        .grid = static_cast<int>(stage.grid), .threads = stage.threads, .smem_bytes = smem_bytes<C>, .pdl = stage.pdl};
    return launch(cake_moe_sm90_fc2<C>, shape, static_cast<cudaStream_t>(stream), args);
  });
}

}  // namespace cake_moe::sm90::fc2

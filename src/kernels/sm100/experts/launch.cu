#include "kernels/sm100/experts/launch.h"

#include "kernels/common/launch.h"
#include "kernels/common/tensor_map.h"
#include "kernels/sm100/experts/kernel.cuh"
#include "kernels/sm100/instances.h"

namespace cake_moe::sm100::experts {
namespace {

Args arguments(const MoeParams& params, const Plan& plan) {
  const auto section = [&](Section name) { return params.workspace + plan.workspace[name].offset; };
  Args args{};
  args.input = {
      .route = {.ids = params.expert_ids,
                .num_tokens = params.num_tokens,
                .expert_offsets = reinterpret_cast<int32_t*>(section(Section::kExpertOffsets)),
                .row_route = reinterpret_cast<int32_t*>(section(Section::kRowRoute)),
                .route_row = reinterpret_cast<int32_t*>(section(Section::kRouteRow)),
                .tiles = reinterpret_cast<int4*>(section(Section::kTiles)),
                .tile_count = reinterpret_cast<int32_t*>(section(Section::kTileCount))},
      .x = reinterpret_cast<const uint4*>(params.input),
      .encode = params.input_encode,
  };
  args.fc1 = {
      .scales = params.fc1_scales,
      .xq = section(Section::kXq),
      .xs = section(Section::kXs),
      .alpha = params.fc1_alpha,
      .beta = params.beta,
      .linear_beta = params.linear_beta,
      .encode = params.hidden_encode,
  };
  args.fc2 = {
      .scales = params.fc2_scales,
      .alpha = params.fc2_alpha,
      .y = reinterpret_cast<uint16_t*>(section(Section::kY)),
  };
  args.row_route = reinterpret_cast<const int32_t*>(section(Section::kRowRoute));
  args.tiles = reinterpret_cast<int4*>(section(Section::kTiles));
  args.tile_count = reinterpret_cast<const int32_t*>(section(Section::kTileCount));
  args.work_counter = reinterpret_cast<uint32_t*>(section(Section::kWorkCounter));
  args.hq = section(Section::kHq);
  args.hs = section(Section::kHs);
  return args;
}

template <typename C>
const char* load_instance() {
  const cudaError_t status =
      cudaFuncSetAttribute(cake_moe_sm100_experts<C>, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared<C>));
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}

template <typename C>
const char* run_instance(const MoeParams& params, const Plan& plan, const Launch& stage, cudaStream_t stream) {
  if (stage.tile_rows != kMmaRows || stage.threads != C::kThreads) {
    return "sm_100a experts: the plan's tile or threads are not those of the instance";
  }
  CUtensorMap fc1_weights, fc2_weights;
  if (const char* error = encode_byte_map(&fc1_weights, params.fc1_weights, kFc1RowBytes, int64_t{kExperts} * kFc1Rows,
                                          Fc1::kChunkBytes, kMmaRows)) {
    return error;
  }
  if (const char* error = encode_byte_map(&fc2_weights, params.fc2_weights, kFc2RowBytes, int64_t{kExperts} * kFc2Rows,
                                          Fc2::kChunkBytes, kMmaRows)) {
    return error;
  }
  const LaunchShape shape = {.grid = static_cast<int>(stage.grid),
                             .threads = stage.threads,
                             .smem_bytes = sizeof(Shared<C>),
                             .pdl = stage.pdl,
                             .cooperative = C::kQuantize};
  return launch(cake_moe_sm100_experts<C>, shape, stream, arguments(params, plan), fc1_weights, fc2_weights);
}

}  // namespace

const char* load() {
  if (const char* error = load_instance<Config<route::kCtaTileRows, true>>()) return error;
  return for_each_tile(TokenTiles{}, [&]<int kTokens>() -> const char* { return load_instance<Config<kTokens>>(); });
}

const char* run(const MoeParams& params, const Plan& plan, const Launch& stage, void* stream) {
  if (!stage.pdl) {  // the first launch: nobody has routed
    return run_instance<Config<route::kCtaTileRows, true>>(params, plan, stage, static_cast<cudaStream_t>(stream));
  }
  return for_tile(TokenTiles{}, stage.tile_tokens, [&]<int kTokens>() -> const char* {
    return run_instance<Config<kTokens>>(params, plan, stage, static_cast<cudaStream_t>(stream));
  });
}

}  // namespace cake_moe::sm100::experts

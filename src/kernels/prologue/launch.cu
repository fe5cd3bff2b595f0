#include "kernels/prologue/launch.h"

#include "kernels/common/launch.h"
#include "kernels/prologue/kernel.cuh"

namespace cake_moe::prologue {
namespace {

template <typename T>
T* section(const MoeParams& params, const Plan& plan, Section name) {
  return reinterpret_cast<T*>(params.workspace + plan.workspace[name].offset);
}

}  // namespace

route::Args route_args_of(const MoeParams& params, const Plan& plan, int tile_tokens) {
  return {
      .ids = params.expert_ids,
      .num_tokens = params.num_tokens,
      .tile_tokens = tile_tokens,
      .expert_offsets = section<int32_t>(params, plan, Section::kExpertOffsets),
      .row_route = section<int32_t>(params, plan, Section::kRowRoute),
      .route_row = section<int32_t>(params, plan, Section::kRouteRow),
      .tiles = section<int4>(params, plan, Section::kTiles),
      .tile_count = section<int32_t>(params, plan, Section::kTileCount),
      .work_counter = section<uint32_t>(params, plan, Section::kWorkCounter),
      .progress =
          plan.workspace[Section::kProgress].bytes > 0 ? section<int32_t>(params, plan, Section::kProgress) : nullptr,
  };
}

QuantizeArgs quantize_args_of(const MoeParams& params, const Plan& plan) {
  return {
      .x = reinterpret_cast<const uint4*>(params.input),
      .encode = params.input_encode,
      .xq = section<uint2>(params, plan, Section::kXq),
      .xs = section<uint8_t>(params, plan, Section::kXs),
      .x_half = plan.workspace[Section::kXHalf].bytes > 0 ? section<uint8_t>(params, plan, Section::kXHalf) : nullptr,
  };
}

const char* load() {
  const cudaError_t status =
      cudaFuncSetAttribute(cake_moe_prologue, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared));
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}

const char* run(const MoeParams& params, const Plan& plan, const Launch& stage, int tile_tokens, void* stream) {
  if (stage.threads != kThreads || stage.cluster > route::kMostCtas || stage.grid <= stage.cluster) {
    return "prologue: the plan's CTAs are not those of the kernel";
  }
  const LaunchShape shape = {.grid = static_cast<int>(stage.grid),
                             .threads = stage.threads,
                             .smem_bytes = sizeof(Shared),
                             .pdl = stage.pdl,
                             .cluster = stage.cluster};
  const int64_t items = int64_t{params.num_tokens} * kItemsPerToken;
  return launch(cake_moe_prologue, shape, static_cast<cudaStream_t>(stream), route_args_of(params, plan, tile_tokens),
                quantize_args_of(params, plan), items, stage.cluster);
}

}  // namespace cake_moe::prologue

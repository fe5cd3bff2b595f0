#include "kernels/sm90/experts/launch.h"

#include "kernels/common/launch.h"
#include "kernels/common/tensor_map.h"
#include "kernels/finalize/args.h"
#include "kernels/sm90/experts/kernel.cuh"

namespace cake_moe::sm90::experts {
namespace {

template <typename T>
T* section(const MoeParams& params, const Plan& plan, Section name) {
  return reinterpret_cast<T*>(params.workspace + plan.workspace[name].offset);
}

Args arguments(const MoeParams& params, const Plan& plan) {
  Args args{};
  args.route = {
      .ids = params.expert_ids,
      .num_tokens = params.num_tokens,
      .expert_offsets = section<int32_t>(params, plan, Section::kExpertOffsets),
      .row_route = section<int32_t>(params, plan, Section::kRowRoute),
      .route_row = section<int32_t>(params, plan, Section::kRouteRow),
  };
  args.input = {
      .x = reinterpret_cast<const uint4*>(params.input),
      .encode = params.input_encode,
      .xq = section<uint2>(params, plan, Section::kXq),
      .xs = section<uint8_t>(params, plan, Section::kXs),
  };
  args.fc1 = {
      .scales = params.fc1_scales,
      .x_half = nullptr,
      .row_route = args.route.row_route,
      .tiles = nullptr,
      .tile_count = nullptr,
      .alpha = params.fc1_alpha,
      .beta = params.beta,
      .linear_beta = params.linear_beta,
      .encode = params.hidden_encode,
      .hq = section<uint8_t>(params, plan, Section::kHq),
      .hs = section<uint8_t>(params, plan, Section::kHs),
  };
  args.fc2 = {
      .weights = params.fc2_weights,
      .scales = params.fc2_scales,
      .tiles = nullptr,
      .tile_count = nullptr,
      .work_counter = nullptr,
      .alpha = params.fc2_alpha,
      .hq = args.fc1.hq,
      .hs = args.fc1.hs,
      .y = section<uint16_t>(params, plan, Section::kY),
      .progress = nullptr,
      .finalize = finalize::args_of(params, plan),
      .num_tokens = params.num_tokens,
  };
  args.packets = section<Packet>(params, plan, Section::kXHalf);
  return args;
}

}  // namespace

const char* load() {
  cudaError_t status =
      cudaFuncSetAttribute(cake_moe_sm90_experts, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared));
  if (status != cudaSuccess) return cudaGetErrorString(status);
  int ctas = 0;
  status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&ctas, cake_moe_sm90_experts, kThreads, sizeof(Shared));
  if (status != cudaSuccess) return cudaGetErrorString(status);
  return ctas >= kCtasPerSm ? nullptr : "sm_90a experts: an SM cannot hold the CTAs that must run together";
}

const char* run(const MoeParams& params, const Plan& plan, const Launch& stage, void* stream) {
  if (stage.threads != kThreads || stage.tile_tokens != kTokens || stage.tile_rows != kFc1ItemUnits * kFc1UnitRows ||
      params.num_tokens > kMaxTokens || stage.grid > kMaxCtas) {
    return "sm_90a experts: the plan's tile or threads are not those of the kernel";
  }
  WeightMaps maps;
  for (int units = 1; units <= kFc1ItemUnits; ++units) {
    if (const char* error = encode_byte_map(&maps.of_units[units - 1], params.fc1_weights, kFc1RowBytes,
                                            int64_t{kExperts} * kFc1Rows, kStageK / 2, units * kFc1UnitRows)) {
      return error;
    }
  }
  const LaunchShape shape = {.grid = static_cast<int>(stage.grid),
                             .threads = stage.threads,
                             .smem_bytes = sizeof(Shared),
                             .pdl = stage.pdl,
                             .cooperative = true};
  return launch(cake_moe_sm90_experts, shape, static_cast<cudaStream_t>(stream), arguments(params, plan), maps);
}

}  // namespace cake_moe::sm90::experts

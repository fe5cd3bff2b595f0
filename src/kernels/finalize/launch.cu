#include "kernels/finalize/launch.h"

#include "kernels/common/launch.h"
#include "kernels/finalize/kernel.cuh"

namespace cake_moe::finalize {

const char* load() {
  cudaFuncAttributes attributes;
  const cudaError_t status = cudaFuncGetAttributes(&attributes, cake_moe_finalize);
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}

const char* run(const MoeParams& params, const Plan& plan, const Launch& stage, void* stream) {
  if (stage.threads < kTopK || kTokenThreads % stage.threads != 0 ||
      stage.grid * stage.threads != int64_t{params.num_tokens} * kTokenThreads) {
    return "finalize: the plan's grid does not cover the output";
  }
  const auto section = [&](Section name) { return params.workspace + plan.workspace[name].offset; };
  const Args args = {
      .route_row = reinterpret_cast<const int32_t*>(section(Section::kRouteRow)),
      .route_weights = params.route_weights,
      .weights_are_float = params.route_weights_are_float,
      .y = reinterpret_cast<const uint4*>(section(Section::kY)),
      .output = reinterpret_cast<uint4*>(params.output),
  };
  const LaunchShape shape = {
      .grid = static_cast<int>(stage.grid), .threads = stage.threads, .smem_bytes = 0, .pdl = stage.pdl};
  return launch(cake_moe_finalize, shape, static_cast<cudaStream_t>(stream), args);
}

}  // namespace cake_moe::finalize

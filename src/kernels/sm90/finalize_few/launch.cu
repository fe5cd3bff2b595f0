#include "kernels/sm90/finalize_few/launch.h"

#include "kernels/common/launch.h"
#include "kernels/finalize/args.h"
#include "kernels/sm90/finalize_few/kernel.cuh"

namespace cake_moe::sm90::finalize_few {

const char* load() {
  cudaFuncAttributes attributes;
  const cudaError_t status = cudaFuncGetAttributes(&attributes, cake_moe_sm90_finalize_few);
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}

const char* run(const MoeParams& params, const Plan& plan, const Launch& stage, void* stream) {
  if (stage.threads < kTopK || stage.threads > kMostThreads || kTokenThreads % stage.threads != 0 ||
      stage.grid * stage.threads != int64_t{params.num_tokens} * kTokenThreads) {
    return "sm_90a finalize: the plan's grid does not cover the output";
  }
  const LaunchShape shape = {
      .grid = static_cast<int>(stage.grid), .threads = stage.threads, .smem_bytes = 0, .pdl = stage.pdl};
  return launch(cake_moe_sm90_finalize_few, shape, static_cast<cudaStream_t>(stream), finalize::args_of(params, plan),
                params.expert_ids, params.num_tokens);
}

}  // namespace cake_moe::sm90::finalize_few

#include "kernels/finalize/launch.h"

#include "kernels/common/launch.h"
#include "kernels/finalize/kernel.cuh"
#include "kernels/finalize/ring_kernel.cuh"

namespace cake_moe::finalize {

const char* load() {
  cudaFuncAttributes attributes;
  cudaError_t status = cudaFuncGetAttributes(&attributes, cake_moe_finalize);
  if (status == cudaSuccess) {
    status = cudaFuncSetAttribute(cake_moe_finalize_ring, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Ring));
  }
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}

const char* run(const MoeParams& params, const Plan& plan, const Launch& stage, void* stream) {
  const Args args = args_of(params, plan);
  LaunchShape shape = {
      .grid = static_cast<int>(stage.grid), .threads = stage.threads, .smem_bytes = 0, .pdl = stage.pdl};
  if (stage.threads == kRingThreads) {
    shape.smem_bytes = sizeof(Ring);
    return launch(cake_moe_finalize_ring, shape, static_cast<cudaStream_t>(stream), args, params.num_tokens);
  }
  if (stage.threads < kTopK || kTokenThreads % stage.threads != 0 ||
      stage.grid * stage.threads != int64_t{params.num_tokens} * kTokenThreads) {
    return "finalize: the plan's grid does not cover the output";
  }
  return launch(cake_moe_finalize, shape, static_cast<cudaStream_t>(stream), args);
}

}  // namespace cake_moe::finalize

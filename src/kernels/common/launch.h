// One way to launch a kernel: attributes set, status returned as text.
#pragma once

#include <cuda_runtime.h>

namespace cake_moe {

struct LaunchShape {
  int grid;
  int threads;
  int smem_bytes = 0;
  bool pdl = false;          // programmatic dependent launch: may start before its predecessor on the stream has ended
  int cluster = 1;           // CTAs a cluster; divides the grid
  bool cooperative = false;  // all CTAs are resident together, or the launch fails
};

// Returns nullptr, or the CUDA error's text. Only reports errors of this launch: an earlier asynchronous error of
// another kernel is left for its owner.
template <typename... Params, typename... Args>
const char* launch(void (*kernel)(Params...), const LaunchShape& shape, cudaStream_t stream, Args... args) {
  cudaLaunchAttribute attributes[3] = {};
  unsigned count = 0;
  if (shape.pdl) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {static_cast<unsigned>(shape.cluster), 1, 1};
  }
  if (shape.cooperative) {
    attributes[count].id = cudaLaunchAttributeCooperative;
    attributes[count++].val.cooperative = 1;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(shape.grid);
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.smem_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  const cudaError_t status = cudaLaunchKernelEx(&config, kernel, Params(args)...);
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}

}  // namespace cake_moe

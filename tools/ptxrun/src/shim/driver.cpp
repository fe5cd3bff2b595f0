// The driver functions that launch code asks for by name, and tensor maps.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>

#include "shim/device.h"
#include "shim/tensor_map_encode.h"

extern "C" {

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType dtype, cuuint32_t rank, void* base,
                                const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2_promotion,
                                CUtensorMapFloatOOBfill oob_fill) {
  static_assert(sizeof(CUtensorMap) == sizeof(ptxrun::TensorMapHandle));
  static_assert(sizeof(cuuint64_t) == sizeof(uint64_t) && sizeof(cuuint32_t) == sizeof(uint32_t));
  const ptxrun::TensorMapDescription description = {
      .dtype = static_cast<uint32_t>(dtype),
      .rank = rank,
      .base = reinterpret_cast<uint64_t>(base),
      .dims = reinterpret_cast<const uint64_t*>(dims),
      .strides = reinterpret_cast<const uint64_t*>(strides),
      .box = box,
      .element_strides = element_strides,
      .interleave = static_cast<uint32_t>(interleave),
      .swizzle = static_cast<uint32_t>(swizzle),
      .l2_promotion = static_cast<uint32_t>(l2_promotion),
      .oob_fill = static_cast<uint32_t>(oob_fill),
  };
  ptxrun::TensorMapHandle handle;
  if (const char* error = ptxrun::encode_tensor_map(description, handle)) {
    std::fprintf(stderr, "ptxrun: cuTensorMapEncodeTiled: %s\n", error);
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::memcpy(map, &handle, sizeof(handle));
  return CUDA_SUCCESS;
}

// The driver's attributes have the runtime's layout and numbers, its errors of a launch the runtime's numbers.
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction kernel, void** arguments, void**) {
  static_assert(sizeof(CUlaunchAttribute) == sizeof(cudaLaunchAttribute));
  cudaLaunchConfig_t translated{};
  translated.gridDim = dim3(config->gridDimX, config->gridDimY, config->gridDimZ);
  translated.blockDim = dim3(config->blockDimX, config->blockDimY, config->blockDimZ);
  translated.dynamicSmemBytes = config->sharedMemBytes;
  translated.stream = config->hStream;
  translated.attrs = reinterpret_cast<cudaLaunchAttribute*>(config->attrs);
  translated.numAttrs = config->numAttrs;
  return static_cast<CUresult>(cudaLaunchKernelExC(&translated, kernel, arguments));
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  *function = nullptr;
  if (std::strcmp(symbol, "cuTensorMapEncodeTiled") == 0) *function = reinterpret_cast<void*>(cuTensorMapEncodeTiled);
  if (std::strcmp(symbol, "cuLaunchKernelEx") == 0) *function = reinterpret_cast<void*>(cuLaunchKernelEx);
  const bool known = *function != nullptr;
  if (found != nullptr) *found = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  if (!known) std::fprintf(stderr, "ptxrun: the launch shim does not know the driver's %s\n", symbol);
  return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* found) {
  return cudaGetDriverEntryPointByVersion(symbol, function, CUDART_VERSION, flags, found);
}

}  // extern "C"

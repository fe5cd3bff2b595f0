// A small program for the launch shim: every way to launch, and launches that the runtime refuses.
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include <cstdint>

#define EXPORT extern "C" __attribute__((visibility("default")))

struct Pair {
  uint64_t address;
  int16_t count;
};

__constant__ int factors[3] = {2, 3, 5};

__global__ void scale(const int* in, int* out, int n, double unused) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) out[i] = in[i] * factors[i % 3] + static_cast<int>(unused);
}

template <typename T>
__global__ void fill(Pair where, T value) {
  extern __shared__ int memory[];
  memory[threadIdx.x] = static_cast<int>(value);
  __syncthreads();
  if (threadIdx.x < where.count) reinterpret_cast<T*>(where.address)[threadIdx.x] = static_cast<T>(memory[0]);
}

__global__ void take_map(const __grid_constant__ CUtensorMap map, uint64_t* out) {
  if (threadIdx.x == 0) *out = reinterpret_cast<const uint64_t*>(&map)[1];
}

EXPORT void launch_scale(uint64_t in, uint64_t out, int n) {
  scale<<<dim3((n + 31) / 32), 32>>>(reinterpret_cast<const int*>(in), reinterpret_cast<int*>(out), n, 0.0);
}

EXPORT int launch_fill(uint64_t address, int smem_bytes, int allowed, int cluster) {
  if (allowed > 0) {
    const auto attribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
    if (const cudaError_t error = cudaFuncSetAttribute(fill<short>, attribute, allowed)) return error;
  }
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(4, 2);
  config.blockDim = dim3(64);
  config.dynamicSmemBytes = smem_bytes;
  config.attrs = attributes;
  config.numAttrs = 2;
  return cudaLaunchKernelEx(&config, fill<short>, Pair{address, 3}, short{7});
}

EXPORT int launch_cooperative(uint64_t address) {
  Pair where{address, 1};
  short value = 1;
  void* arguments[] = {&where, &value};
  return cudaLaunchCooperativeKernel(fill<short>, dim3(1), dim3(32), arguments, 256, nullptr);
}

EXPORT int launch_by_driver(uint64_t address, unsigned smem_bytes) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  if (cudaGetDriverEntryPointByVersion("cuLaunchKernelEx", &function, 12000, cudaEnableDefault, &found)) return -1;
  cudaKernel_t kernel = nullptr;
  if (cudaGetKernel(&kernel, fill<short>) != cudaSuccess) return -1;
  CUlaunchAttribute attributes[3] = {};
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attributes[0].value.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attributes[1].value.clusterDim = {2, 1, 1};
  attributes[2].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attributes[2].value.cooperative = 1;
  CUlaunchConfig config{};
  config.gridDimX = 4, config.gridDimY = 2, config.gridDimZ = 1;
  config.blockDimX = 64, config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = smem_bytes;
  config.attrs = attributes;
  config.numAttrs = 3;
  Pair where{address, 3};
  short value = 7;
  void* arguments[] = {&where, &value};
  return reinterpret_cast<PFN_cuLaunchKernelEx_v11060>(function)(&config, reinterpret_cast<CUfunction>(kernel),
                                                                 arguments, nullptr);
}

EXPORT int launch_shape(unsigned grid_y, unsigned block_z) {
  (void)cudaGetLastError();
  scale<<<dim3(1, grid_y), dim3(1, 1, block_z)>>>(nullptr, nullptr, 0, 0.0);
  return cudaGetLastError();
}

EXPORT int launch_map(uint64_t base, uint64_t out, uint64_t row_bytes) {
  (void)cudaGetLastError();  // of an earlier launch
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found))
    return -1;
  const cuuint64_t dims[] = {64, 16}, strides[] = {row_bytes};
  const cuuint32_t box[] = {32, 8}, steps[] = {1, 1};
  CUtensorMap map;
  const CUresult status = reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function)(
      &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, reinterpret_cast<void*>(base), dims, strides, box, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) return status;
  take_map<<<1, 32>>>(map, reinterpret_cast<uint64_t*>(out));
  return cudaGetLastError();
}

EXPORT int device_number(int attribute) {
  int value = 0;
  const cudaError_t error = cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(attribute), 0);
  return error == cudaSuccess ? value : -error;
}

// The entry points of the CUDA runtime that launch code needs. Nothing is executed: launches are recorded.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>

#include "shim/device.h"
#include "shim/kernels.h"

using namespace ptxrun::shim;

namespace {

thread_local cudaError_t last_error = cudaSuccess;
thread_local cudaLaunchConfig_t pushed{};

cudaError_t launch(const cudaLaunchConfig_t& config, const void* function, void** arguments) {
  const Kernel* kernel = Program::instance().find(function);
  return status(kernel == nullptr ? cudaErrorInvalidDeviceFunction : record(config, *kernel, arguments));
}

cudaLaunchConfig_t plain_config(dim3 grid, dim3 block, size_t smem_bytes, cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = smem_bytes;
  config.stream = stream;
  return config;
}

int attribute_value(cudaDeviceAttr name, bool& known) {
  const Device& device = Device::current();
  known = true;
  switch (name) {
    case cudaDevAttrComputeCapabilityMajor:
      return device.major;
    case cudaDevAttrComputeCapabilityMinor:
      return device.minor;
    case cudaDevAttrMultiProcessorCount:
      return device.sm_count;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return 48 << 10;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return kSmemPerBlock;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return kSmemPerSm;
    case cudaDevAttrReservedSharedMemoryPerBlock:
      return kReservedSmem;
    case cudaDevAttrMaxThreadsPerBlock:
      return 1024;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return 2048;
    case cudaDevAttrMaxRegistersPerMultiprocessor:
    case cudaDevAttrMaxRegistersPerBlock:
      return 65536;
    case cudaDevAttrWarpSize:
      return 32;
    case cudaDevAttrCooperativeLaunch:
      return 1;
    default:
      known = false;
      return 0;
  }
}

}  // namespace

cudaError_t ptxrun::shim::status(cudaError_t value) {
  if (value != cudaSuccess) last_error = value;
  return value;
}

extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) {
  return reinterpret_cast<void**>(Program::instance().add_fat_binary(wrapper));
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void** handle, const char* host_function, char*, const char* name, int, uint3*, uint3*,
                            dim3*, dim3*, int*) {
  Program::instance().add_kernel(reinterpret_cast<size_t>(handle), host_function, name);
}
// The initial value of a device variable is part of the PTX.
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
char __cudaInitModule(void**) { return 1; }

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t smem_bytes, cudaStream_t stream) {
  pushed = plain_config(grid, block, smem_bytes, stream);
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* smem_bytes, void* stream) {
  *grid = pushed.gridDim;
  *block = pushed.blockDim;
  *smem_bytes = pushed.dynamicSmemBytes;
  *static_cast<cudaStream_t*>(stream) = pushed.stream;
  return cudaSuccess;
}

// A kernel's handle is its host function.
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
cudaError_t cudaGetKernel(cudaKernel_t* kernel, const void* function) { return __cudaGetKernel(kernel, function); }
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t smem_bytes,
                               cudaStream_t stream) {
  return launch(plain_config(grid, block, smem_bytes, stream), kernel, arguments);
}
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t smem_bytes,
                             cudaStream_t stream) {
  return launch(plain_config(grid, block, smem_bytes, stream), function, arguments);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void** arguments) {
  return launch(*config, function, arguments);
}
cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                                        size_t smem_bytes, cudaStream_t stream) {
  cudaLaunchAttribute cooperative{};
  cooperative.id = cudaLaunchAttributeCooperative;
  cooperative.val.cooperative = 1;
  cudaLaunchConfig_t config = plain_config(grid, block, smem_bytes, stream);
  config.attrs = &cooperative;
  config.numAttrs = 1;
  return launch(config, function, arguments);
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute name, int value) {
  Kernel* kernel = Program::instance().find(function);
  if (kernel == nullptr) return status(cudaErrorInvalidDeviceFunction);
  switch (name) {
    case cudaFuncAttributeMaxDynamicSharedMemorySize:
      if (value < 0 || value > kSmemPerBlock) return status(cudaErrorInvalidValue);
      kernel->max_dynamic_smem = value;
      return cudaSuccess;
    case cudaFuncAttributeNonPortableClusterSizeAllowed:
      kernel->non_portable_cluster = value != 0;
      return cudaSuccess;
    case cudaFuncAttributePreferredSharedMemoryCarveout:
      return cudaSuccess;
    default:
      return status(not_supported("a function attribute"));
  }
}
// Registers, static shared and local memory are the assembler's and stay 0.
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  const Kernel* kernel = Program::instance().find(function);
  if (kernel == nullptr) return status(cudaErrorInvalidDeviceFunction);
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  attributes->maxDynamicSharedSizeBytes = kernel->max_dynamic_smem;
  attributes->ptxVersion = attributes->binaryVersion = Device::current().arch();
  return cudaSuccess;
}

// By threads and shared memory alone: the number of registers is not known.
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function, int threads,
                                                                   size_t smem_bytes, unsigned) {
  if (Program::instance().find(function) == nullptr) return status(cudaErrorInvalidDeviceFunction);
  const int by_threads = 2048 / threads;
  const int by_memory = kSmemPerSm / static_cast<int>(smem_bytes + kReservedSmem);
  *blocks = by_threads < by_memory ? by_threads : by_memory;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int threads,
                                                          size_t smem_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, smem_bytes, 0);
}
cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void* function, const cudaLaunchConfig_t* config) {
  int blocks = 0;
  const dim3 block = config->blockDim;
  const cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      &blocks, function, static_cast<int>(block.x * block.y * block.z), config->dynamicSmemBytes);
  if (error != cudaSuccess) return error;
  unsigned size = 1;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const auto& value = config->attrs[i].val.clusterDim;
    if (config->attrs[i].id == cudaLaunchAttributeClusterDimension) size = value.x * value.y * value.z;
  }
  *clusters = Device::current().sm_count * blocks / static_cast<int>(size);
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* index) {
  *index = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int index) { return index == 0 ? cudaSuccess : status(cudaErrorInvalidDevice); }
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr name, int) {
  bool known = false;
  *value = attribute_value(name, known);
  if (known) return cudaSuccess;
  std::fprintf(stderr, "ptxrun: device attribute %d\n", static_cast<int>(name));
  return status(not_supported("this device attribute"));
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  const Device& device = Device::current();
  std::strcpy(properties->name, "ptxrun");
  properties->major = device.major;
  properties->minor = device.minor;
  properties->multiProcessorCount = device.sm_count;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
  properties->sharedMemPerBlock = 48 << 10;
  properties->sharedMemPerBlockOptin = kSmemPerBlock;
  properties->sharedMemPerMultiprocessor = kSmemPerSm;
  properties->reservedSharedMemPerBlock = kReservedSmem;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() { return last_error; }
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidDeviceFunction:
      return "cudaErrorInvalidDeviceFunction";
    case cudaErrorInvalidClusterSize:
      return "cudaErrorInvalidClusterSize";
    case cudaErrorNoKernelImageForDevice:
      return "cudaErrorNoKernelImageForDevice";
    case cudaErrorNotSupported:
      return "cudaErrorNotSupported";
    default:
      return "an error of the CUDA runtime";
  }
}
const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }

}  // extern "C"

#include "kernels/common/launch.h"

#include <cudaTypedefs.h>

#include <cstdint>

#include "kernels/common/driver.h"

namespace cake_moe {
namespace {

// The runtime's handle of a kernel, which serves every device. Kept by its host function: a step of a model launches
// the same few.
CUkernel handle_of(const void* kernel) {
  struct Slot {
    const void* kernel;
    cudaKernel_t handle;
  };
  constexpr size_t kSlots = 64;
  thread_local Slot slots[kSlots] = {};
  Slot& slot = slots[reinterpret_cast<uintptr_t>(kernel) / 16 % kSlots];
  if (slot.kernel != kernel) {
    cudaKernel_t handle = nullptr;
    if (cudaGetKernel(&handle, kernel) != cudaSuccess) return nullptr;
    slot = {kernel, handle};
  }
  return slot.handle;
}

unsigned set_attributes(const LaunchShape& shape, CUlaunchAttribute (&attributes)[3]) {
  unsigned count = 0;
  if (shape.pdl) {
    attributes[count].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attributes[count++].value.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    attributes[count].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attributes[count++].value.clusterDim = {static_cast<unsigned>(shape.cluster), 1, 1};
  }
  if (shape.cooperative) {
    attributes[count].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attributes[count++].value.cooperative = 1;
  }
  return count;
}

}  // namespace

// By the driver's function: the runtime's takes 0.6 us more of the host's time (docs/architecture.md).
const char* launch_function(const void* kernel, const LaunchShape& shape, cudaStream_t stream, void** arguments) {
  static const auto driver_launch =
      reinterpret_cast<PFN_cuLaunchKernelEx_v11060>(find_driver_function("cuLaunchKernelEx", 11060));
  if (driver_launch == nullptr) return "the CUDA driver has no cuLaunchKernelEx";
  const CUkernel handle = handle_of(kernel);
  if (handle == nullptr) return cudaGetErrorString(cudaErrorInvalidDeviceFunction);
  CUlaunchAttribute attributes[3] = {};
  CUlaunchConfig config{};
  config.gridDimX = static_cast<unsigned>(shape.grid);
  config.blockDimX = static_cast<unsigned>(shape.threads);
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = static_cast<unsigned>(shape.smem_bytes);
  config.hStream = stream;
  config.attrs = attributes;
  config.numAttrs = set_attributes(shape, attributes);
  const CUresult status =
      call_driver([&] { return driver_launch(&config, reinterpret_cast<CUfunction>(handle), arguments, nullptr); });
  // The driver's errors of a launch have the runtime's numbers.
  return status == CUDA_SUCCESS ? nullptr : cudaGetErrorString(static_cast<cudaError_t>(status));
}

}  // namespace cake_moe

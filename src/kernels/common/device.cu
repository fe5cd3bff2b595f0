#include "kernels/common/device.h"

#include <cuda_runtime.h>

#include <stdexcept>

namespace cake_moe {
namespace {

int attribute(cudaDeviceAttr name, int index) {
  int value = 0;
  if (const cudaError_t status = cudaDeviceGetAttribute(&value, name, index); status != cudaSuccess) {
    throw std::runtime_error("CUDA device " + std::to_string(index) + ": " + cudaGetErrorString(status));
  }
  return value;
}

std::string version(int number) { return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10); }

}  // namespace

Device read_device(int index) {
  const int major = attribute(cudaDevAttrComputeCapabilityMajor, index);
  const int minor = attribute(cudaDevAttrComputeCapabilityMinor, index);
  return {"sm_" + std::to_string(major) + std::to_string(minor), attribute(cudaDevAttrMultiProcessorCount, index)};
}

bool bind_context() {
  int device = 0;
  return cudaGetDevice(&device) == cudaSuccess && cudaSetDevice(device) == cudaSuccess;
}

std::string driver_problem() {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) return "no CUDA driver is installed";
  // Minor versions of one major are compatible in both directions.
  if (driver / 1000 >= CUDART_VERSION / 1000) return "";
  return "the CUDA driver supports " + version(driver) + ", this library needs " + version(CUDART_VERSION) +
         " (any driver of major version " + std::to_string(CUDART_VERSION / 1000) + ")";
}

}  // namespace cake_moe

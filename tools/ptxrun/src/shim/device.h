// The device that the program believes to run on, and the launches that it made there.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "shim/kernels.h"

namespace ptxrun::shim {

struct Device {
  int major = 9;
  int minor = 0;
  int sm_count = 132;

  int arch() const { return 10 * major + minor; }
  static Device& current();
};

inline constexpr int kSmemPerBlock = 227 << 10, kSmemPerSm = 228 << 10, kReservedSmem = 1 << 10;

struct LaunchRecord {
  std::string kernel;
  size_t fat_binary;
  std::array<unsigned, 3> grid, block, cluster;
  size_t smem_bytes;
  bool pdl, cooperative;
  std::vector<std::vector<uint8_t>> arguments;
};

std::vector<LaunchRecord>& launches();

// Records a launch, or refuses it for a reason that the runtime would have too.
cudaError_t record(const cudaLaunchConfig_t& config, const Kernel& kernel, void** arguments);

// Remembers the status for cudaGetLastError and returns it.
cudaError_t status(cudaError_t value);
// Says on the standard error what of the runtime is missing here.
cudaError_t not_supported(const char* what);

}  // namespace ptxrun::shim

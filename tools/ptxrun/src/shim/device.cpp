#include "shim/device.h"

#include <cstdio>

namespace ptxrun::shim {
namespace {

using Extent = std::array<unsigned, 3>;
constexpr Extent kMaxGrid = {0x7FFFFFFF, 65535, 65535}, kMaxBlock = {1024, 1024, 64};
constexpr unsigned kMaxThreads = 1024, kPortableCluster = 8, kMaxCluster = 16;

Extent extent(dim3 value) { return {value.x, value.y, value.z}; }
uint64_t volume(const Extent& of) { return uint64_t{of[0]} * of[1] * of[2]; }
bool within(const Extent& of, const Extent& most) { return of[0] <= most[0] && of[1] <= most[1] && of[2] <= most[2]; }

cudaError_t read_attributes(const cudaLaunchConfig_t& config, LaunchRecord& launch) {
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config.attrs[i];
    switch (attribute.id) {
      case cudaLaunchAttributeProgrammaticStreamSerialization:
        launch.pdl = attribute.val.programmaticStreamSerializationAllowed != 0;
        break;
      case cudaLaunchAttributeCooperative:
        launch.cooperative = attribute.val.cooperative != 0;
        break;
      case cudaLaunchAttributeClusterDimension:
        launch.cluster = {attribute.val.clusterDim.x, attribute.val.clusterDim.y, attribute.val.clusterDim.z};
        break;
      case cudaLaunchAttributeIgnore:
      case cudaLaunchAttributePriority:
      case cudaLaunchAttributeClusterSchedulingPolicyPreference:
      case cudaLaunchAttributePreferredClusterDimension:
        break;
      default:
        return not_supported("a launch attribute");
    }
  }
  return cudaSuccess;
}

cudaError_t check_shape(const LaunchRecord& launch, const Kernel& kernel) {
  for (const auto& extents : {launch.grid, launch.block, launch.cluster}) {
    if (volume(extents) == 0) return cudaErrorInvalidConfiguration;
  }
  if (!within(launch.grid, kMaxGrid) || !within(launch.block, kMaxBlock)) return cudaErrorInvalidConfiguration;
  if (volume(launch.block) > kMaxThreads) return cudaErrorInvalidConfiguration;
  for (int i = 0; i < 3; ++i) {
    if (launch.grid[i] % launch.cluster[i] != 0) return cudaErrorInvalidConfiguration;
  }
  const unsigned most = kernel.non_portable_cluster ? kMaxCluster : kPortableCluster;
  if (volume(launch.cluster) > most) return cudaErrorInvalidClusterSize;
  return launch.smem_bytes <= static_cast<size_t>(kernel.max_dynamic_smem) ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace

Device& Device::current() {
  static Device device;
  return device;
}

std::vector<LaunchRecord>& launches() {
  static auto* const records = new std::vector<LaunchRecord>;
  return *records;
}

cudaError_t record(const cudaLaunchConfig_t& config, const Kernel& kernel, void** arguments) {
  const Module* module = Program::instance().module_of(kernel, Device::current().arch());
  if (module == nullptr) return cudaErrorNoKernelImageForDevice;
  LaunchRecord launch{.kernel = kernel.name,
                      .fat_binary = kernel.fat_binary,
                      .grid = extent(config.gridDim),
                      .block = extent(config.blockDim),
                      .cluster = {1, 1, 1},
                      .smem_bytes = config.dynamicSmemBytes,
                      .pdl = false,
                      .cooperative = false,
                      .arguments = {}};
  if (const cudaError_t error = read_attributes(config, launch); error != cudaSuccess) return error;
  if (const cudaError_t error = check_shape(launch, kernel); error != cudaSuccess) return error;
  for (const size_t bytes : parameter_sizes(module->ptx, kernel.name)) {
    const auto* value = static_cast<const uint8_t*>(*arguments++);
    launch.arguments.emplace_back(value, value + bytes);
  }
  launches().push_back(std::move(launch));
  return cudaSuccess;
}

cudaError_t not_supported(const char* what) {
  std::fprintf(stderr, "ptxrun: the launch shim does not know %s\n", what);
  return cudaErrorNotSupported;
}

}  // namespace ptxrun::shim

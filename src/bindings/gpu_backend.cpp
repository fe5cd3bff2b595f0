#include "bindings/gpu_backend.h"

#include <torch/csrc/stable/accelerator.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>

#include "bindings/torch_cuda.h"
#include "kernels/common/built.h"
#if CAKE_MOE_SM90A
#include "kernels/sm90/backend.h"
#endif
#if CAKE_MOE_SM100A
#include "kernels/sm100/backend.h"
#endif

namespace cake_moe::gpu {
namespace {

constexpr const char* kNotBuilt = "this build has no kernels for the architecture";

struct Backend {
  const char* (*load_kernels)();
  const char* (*run_launch)(const MoeParams& params, const Plan& plan, int index, void* stream);
};

Backend backend_of(const char* op, Arch arch) {
#if CAKE_MOE_SM90A
  if (arch == Arch::kSm90a) return {sm90::load_kernels, sm90::run_launch};
#endif
#if CAKE_MOE_SM100A
  if (arch == Arch::kSm100a || arch == Arch::kSm103a) return {sm100::load_kernels, sm100::run_launch};
#endif
  throw std::runtime_error(std::string(op) + ": " + arch_name(arch) + ": " + kNotBuilt);
}

bool waits_for_stages() {
  static const char* value = std::getenv("CAKE_MOE_SYNC");
  return value != nullptr && std::strcmp(value, "1") == 0;
}

}  // namespace

void load_kernels(const char* op, Arch arch, Place place) {
  static std::mutex mutex;
  static std::set<int32_t> loaded;
  const std::lock_guard lock(mutex);
  if (loaded.contains(place.cuda_index)) return;
  const torch::stable::accelerator::DeviceGuard guard(place.cuda_index);
  if (const char* error = backend_of(op, arch).load_kernels()) {
    throw std::runtime_error(std::string(op) + ": loading kernels: " + error);
  }
  loaded.insert(place.cuda_index);
}

void fused_moe(const char* op, const MoeParams& params, const Plan& plan, Place place) {
  const Backend backend = backend_of(op, plan.problem.arch);
  const torch::stable::accelerator::DeviceGuard guard(place.cuda_index);
  void* stream = torch_cuda::current_stream(place);
  const bool wait = waits_for_stages() && !torch_cuda::is_capturing(stream);
  const auto stage = [&](int index) { return std::string(op) + ": " + stage_name(plan.launches[index].stage); };
  for (int i = 0; i < plan.num_launches; ++i) {
    if (const char* error = backend.run_launch(params, plan, i, stream)) {
      throw std::runtime_error(stage(i) + ": " + error);
    }
    if (wait) torch_cuda::synchronize(stream, stage(i));
  }
}

}  // namespace cake_moe::gpu

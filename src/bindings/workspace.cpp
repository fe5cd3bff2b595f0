#include "bindings/workspace.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <stdexcept>

#include "bindings/gpu_backend.h"
#include "bindings/ops.h"
#include "bindings/torch_cuda.h"
#include "bindings/validate.h"
#include "plan/plan.h"

namespace cake_moe {
namespace {

constexpr char kPrepare[] = "prepare_workspace";

using Betas = std::array<float, kExperts>;
constexpr Betas repeat(float value) {
  Betas betas{};
  for (float& beta : betas) beta = value;
  return betas;
}
constexpr Betas kBetas = repeat(kDefaultBeta);
constexpr Betas kLinearBetas = repeat(kDefaultLinearBeta);

std::atomic<bool> auto_prepare{false};

void write_constant(const Argument& workspace, const Extent& extent, const Betas& betas) {
  uint8_t* destination = workspace.writable<uint8_t>() + extent.offset;
  if (workspace.place.is_cpu()) {
    std::memcpy(destination, betas.data(), extent.bytes);
  } else {
    torch_cuda::upload(destination, betas.data(), extent.bytes, torch_cuda::current_stream(workspace.place));
  }
}

// Memory that was given another purpose since it was prepared has lost the constants. A GPU's cannot be read here.
bool constants_intact(const Argument& workspace) {
  if (!workspace.place.is_cpu()) return true;
  const WorkspaceLayout layout = workspace_layout({1, Arch::kCpu, 0});
  const auto holds = [&](Section section, const Betas& betas) {
    return std::memcmp(workspace.data + layout[section].offset, betas.data(), sizeof betas) == 0;
  };
  return holds(Section::kBeta, kBetas) && holds(Section::kLinearBeta, kLinearBetas);
}

void refuse_capture(Place place) {
  torch_cuda::gpu_problem(kPrepare, place, 1);
  if (torch_cuda::is_capturing(torch_cuda::current_stream(place))) {
    throw std::runtime_error(message(kPrepare, "workspace", "prepared before stream capture", "a capturing stream"));
  }
}

}  // namespace

void make_ready(const Argument& workspace) {
  if (!workspace.place.is_cpu()) {
    const Arch arch = torch_cuda::gpu_problem(workspace.op, workspace.place, 1).arch;
    gpu::load_kernels(workspace.op, arch, workspace.place);
  }
  // Both sections lie at the same offsets in the layout of every problem.
  const WorkspaceLayout layout = workspace_layout({1, Arch::kCpu, 0});
  write_constant(workspace, layout[Section::kBeta], kBetas);
  write_constant(workspace, layout[Section::kLinearBeta], kLinearBetas);
}

void require_prepared(const Argument& workspace, const WorkspaceKey& key, int num_tokens) {
  const bool known = prepared::contains(key, num_tokens);
  if (known && constants_intact(workspace)) return;
  if (auto_prepare.load(std::memory_order_relaxed)) {
    make_ready(workspace);
    return;
  }
  refuse(workspace.op, workspace.name, "prepared for " + std::to_string(num_tokens) + " tokens (prepare_workspace)",
         known ? "one that was overwritten since" : prepared::describe(key));
}

void prepare_workspace(const Tensor& workspace, int64_t num_tokens, bool up_to) {
  const int count = validate_num_tokens(kPrepare, "num_tokens", num_tokens);
  const Argument argument = describe(kPrepare, "workspace", workspace);
  const WorkspaceKey key = validate_workspace(argument, count, argument.place);
  if (!argument.place.is_cpu()) refuse_capture(argument.place);
  make_ready(argument);
  prepared::add(key, count, up_to);
}

void forget_workspace(const Tensor& workspace) {
  const Argument argument = describe("forget_workspace", "workspace", workspace);
  prepared::forget({argument.place, argument.data, argument.bytes});
}

int64_t workspace_size(int64_t max_num_tokens) {
  return workspace_bytes(validate_num_tokens("workspace_size", "max_num_tokens", max_num_tokens));
}

bool set_auto_prepare(bool enabled) { return auto_prepare.exchange(enabled); }

}  // namespace cake_moe

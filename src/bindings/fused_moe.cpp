#include <torch/csrc/stable/ops.h>

#include "bindings/gpu_backend.h"
#include "bindings/ops.h"
#include "bindings/thread_pool.h"
#include "bindings/torch_cuda.h"
#include "bindings/validate.h"
#include "bindings/workspace.h"
#include "kernels/cpu/backend.h"
#include "plan/plan.h"

namespace cake_moe {
namespace {

using torch::headeronly::ScalarType;

constexpr char kOp[] = "fused_moe";

Problem problem_of(const FusedMoeCall& call) {
  if (call.place.is_cpu()) return {call.params.num_tokens, Arch::kCpu, 0};
  return torch_cuda::gpu_problem(kOp, call.place, call.params.num_tokens);
}

// A step of a model calls its layers with one problem. The kept plan cannot be stale: it is a pure function of that.
Plan plan_of(const Problem& problem) {
  thread_local Plan last{};
  if (last.problem != problem) last = make_plan(problem);
  return last;
}

void launch(const MoeParams& params, const Plan& plan, Place place) {
  if (place.is_cpu()) {
    cpu::fused_moe(params, plan, torch_threads());
  } else {
    gpu::fused_moe(kOp, params, plan, place);
  }
}

void use_prepared_betas(MoeParams& params, const WorkspaceLayout& layout) {
  const auto constants = [&](Section section) {
    return reinterpret_cast<const float*>(params.workspace + layout[section].offset);
  };
  if (params.beta == nullptr) params.beta = constants(Section::kBeta);
  if (params.linear_beta == nullptr) params.linear_beta = constants(Section::kLinearBeta);
}

}  // namespace

void fused_moe(const Tensor& input, const Tensor& token_selected_experts, const Tensor& token_final_scales,
               const Tensor& fc1_expert_weights, const Tensor& fc2_expert_weights,
               const std::vector<Tensor>& quant_scales, const Tensor& workspace, const Tensor& output,
               const std::optional<Tensor>& situ_beta, const std::optional<Tensor>& situ_linear_beta) {
  const FusedMoeArguments arguments{input,
                                    token_selected_experts,
                                    token_final_scales,
                                    fc1_expert_weights,
                                    fc2_expert_weights,
                                    quant_scales,
                                    situ_beta,
                                    situ_linear_beta,
                                    &workspace,
                                    &output};
  FusedMoeCall call = validate_fused_moe(arguments);
  if (call.params.num_tokens == 0) return;
  const Plan plan = plan_of(problem_of(call));
  const WorkspaceKey key = validate_workspace(*call.workspace, call.params.num_tokens, call.place);
  validate_values(arguments);
  require_prepared(*call.workspace, key, call.params.num_tokens);
  call.params.workspace = call.workspace->writable<uint8_t>();
  use_prepared_betas(call.params, plan.workspace);
  launch(call.params, plan, call.place);
}

Tensor fused_moe_functional(const Tensor& input, const Tensor& token_selected_experts, const Tensor& token_final_scales,
                            const Tensor& fc1_expert_weights, const Tensor& fc2_expert_weights,
                            const std::vector<Tensor>& quant_scales, const std::optional<Tensor>& situ_beta,
                            const std::optional<Tensor>& situ_linear_beta) {
  const FusedMoeArguments arguments{input,
                                    token_selected_experts,
                                    token_final_scales,
                                    fc1_expert_weights,
                                    fc2_expert_weights,
                                    quant_scales,
                                    situ_beta,
                                    situ_linear_beta,
                                    nullptr,
                                    nullptr};
  FusedMoeCall call = validate_fused_moe(arguments);
  const Tensor output = torch::stable::new_empty(input, {call.params.num_tokens, kHidden});
  if (call.params.num_tokens == 0) return output;
  const Plan plan = plan_of(problem_of(call));
  validate_values(arguments);
  const Tensor workspace = torch::stable::new_empty(input, {workspace_bytes(call.params.num_tokens)}, ScalarType::Byte);
  const Argument memory = describe(kOp, "workspace", workspace);
  make_ready(memory);
  call.params.workspace = memory.writable<uint8_t>();
  call.params.output = static_cast<uint16_t*>(output.mutable_data_ptr());
  use_prepared_betas(call.params, plan.workspace);
  launch(call.params, plan, call.place);
  return output;
}

void warmup(int64_t device_index) {
  if (device_index < 0) {
    cpu::selected_isa();
    return;
  }
  const Place place{static_cast<int32_t>(device_index)};
  gpu::load_kernels("warmup", torch_cuda::gpu_problem("warmup", place, 1).arch, place);
}

}  // namespace cake_moe

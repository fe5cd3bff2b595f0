#include <torch/csrc/stable/ops.h>

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
  return torch_cuda::fused_moe_problem(kOp, call.place, call.params.num_tokens);
}

// An architecture joins kFusedMoeArchs together with its branch here.
void launch(const MoeParams& params, const Plan& plan) { cpu::fused_moe(params, plan, torch_threads()); }

void use_prepared_betas(MoeParams& params, const WorkspaceLayout& layout) {
  const auto constants = [&](Section section) {
    return reinterpret_cast<const float*>(params.workspace + layout[section].offset);
  };
  if (params.beta == nullptr) params.beta = constants(Section::kBeta);
  if (params.linear_beta == nullptr) params.linear_beta = constants(Section::kLinearBeta);
}

void use_default_betas(MoeParams& params) {
  if (params.beta == nullptr) params.beta = default_betas();
  if (params.linear_beta == nullptr) params.linear_beta = default_linear_betas();
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
  const Plan plan = make_plan(problem_of(call));
  const WorkspaceKey key = validate_workspace(*call.workspace, call.params.num_tokens, call.place);
  validate_values(arguments);
  require_prepared(*call.workspace, key, call.params.num_tokens);
  call.params.workspace = call.workspace->writable<uint8_t>();
  use_prepared_betas(call.params, plan.workspace);
  launch(call.params, plan);
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
  const Plan plan = make_plan(problem_of(call));
  validate_values(arguments);
  const Tensor workspace = torch::stable::new_empty(input, {workspace_bytes(call.params.num_tokens)}, ScalarType::Byte);
  call.params.workspace = static_cast<uint8_t*>(workspace.mutable_data_ptr());
  call.params.output = static_cast<uint16_t*>(output.mutable_data_ptr());
  use_default_betas(call.params);
  launch(call.params, plan);
  return output;
}

void warmup(int64_t device_index) {
  if (device_index < 0) {
    cpu::selected_isa();
    return;
  }
  torch_cuda::fused_moe_problem("warmup", {static_cast<int32_t>(device_index)}, 1);
}

}  // namespace cake_moe

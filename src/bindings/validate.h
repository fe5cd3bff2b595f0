// Every rule about the arguments of the operators (their messages: argument.h). All raise before any launch.
#pragma once

#include <optional>
#include <vector>

#include "bindings/argument.h"
#include "bindings/prepared.h"
#include "kernels/common/params.h"

namespace cake_moe {

// The arguments of both overloads; the functional one has neither workspace nor output.
struct FusedMoeArguments {
  const torch::stable::Tensor& input;
  const torch::stable::Tensor& token_selected_experts;
  const torch::stable::Tensor& token_final_scales;
  const torch::stable::Tensor& fc1_expert_weights;
  const torch::stable::Tensor& fc2_expert_weights;
  const std::vector<torch::stable::Tensor>& quant_scales;
  const std::optional<torch::stable::Tensor>& situ_beta;
  const std::optional<torch::stable::Tensor>& situ_linear_beta;
  const torch::stable::Tensor* workspace;
  const torch::stable::Tensor* output;
};

// A call whose arguments passed every rule that does not concern the workspace's state. In `params`, workspace, output
// and omitted betas are null.
struct FusedMoeCall {
  MoeParams params;
  Place place;
  std::optional<Argument> workspace;
};
FusedMoeCall validate_fused_moe(const FusedMoeArguments& arguments);

// Dtype, shape, alignment and size of a workspace for num_tokens tokens on `place`.
WorkspaceKey validate_workspace(const Argument& workspace, int num_tokens, Place place);

// num_tokens in 1..kMaxTokens, or a ValueError about `name`.
int validate_num_tokens(const char* op, const char* name, int64_t num_tokens);

// With CAKE_MOE_VALIDATE=1, also look at values; on a GPU this synchronises. Ids raise std::out_of_range (Python:
// IndexError) naming token, slot and value, scales and betas that are not finite and positive std::invalid_argument.
void validate_values(const FusedMoeArguments& arguments);
bool value_checks_enabled();
// One scale or beta vector, one value an expert (or a single one).
void require_finite_positive(const char* op, const char* name, const torch::stable::Tensor& values);

}  // namespace cake_moe

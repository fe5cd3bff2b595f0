// The bodies of the operators that ops.cpp registers.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

namespace cake_moe {

using torch::stable::Tensor;

void fused_moe(const Tensor& input, const Tensor& token_selected_experts, const Tensor& token_final_scales,
               const Tensor& fc1_expert_weights, const Tensor& fc2_expert_weights,
               const std::vector<Tensor>& quant_scales, const Tensor& workspace, const Tensor& output,
               const std::optional<Tensor>& situ_beta, const std::optional<Tensor>& situ_linear_beta);

Tensor fused_moe_functional(const Tensor& input, const Tensor& token_selected_experts, const Tensor& token_final_scales,
                            const Tensor& fc1_expert_weights, const Tensor& fc2_expert_weights,
                            const std::vector<Tensor>& quant_scales, const std::optional<Tensor>& situ_beta,
                            const std::optional<Tensor>& situ_linear_beta);

void prepare_workspace(const Tensor& workspace, int64_t num_tokens, bool up_to);
void forget_workspace(const Tensor& workspace);
int64_t workspace_size(int64_t max_num_tokens);
bool set_auto_prepare(bool enabled);
void warmup(int64_t device_index);

std::tuple<Tensor, Tensor> quantize_nvfp4(const Tensor& input, const Tensor& encode_scale);

}  // namespace cake_moe

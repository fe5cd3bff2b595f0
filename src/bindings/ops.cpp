// Registration of the operators: schemas, and one body for CPU and CUDA. Fakes are in cake_moe/_fakes.py.
#include "bindings/ops.h"

#include <torch/csrc/stable/library.h>

STABLE_TORCH_LIBRARY(cake, m) {
  m.def(
      "fused_moe(Tensor input, Tensor token_selected_experts, Tensor token_final_scales, Tensor fc1_expert_weights, "
      "Tensor fc2_expert_weights, Tensor[] quant_scales, Tensor(a!) workspace, Tensor(b!) output, "
      "Tensor? situ_beta=None, Tensor? situ_linear_beta=None) -> ()");
  m.def(
      "fused_moe_functional(Tensor input, Tensor token_selected_experts, Tensor token_final_scales, "
      "Tensor fc1_expert_weights, Tensor fc2_expert_weights, Tensor[] quant_scales, "
      "Tensor? situ_beta=None, Tensor? situ_linear_beta=None) -> Tensor");
  m.def("prepare_workspace(Tensor(a!) workspace, int num_tokens, bool up_to=False) -> ()");
  m.def("forget_workspace(Tensor workspace) -> ()");
  m.def("workspace_size(SymInt max_num_tokens) -> SymInt");
  m.def("quantize_nvfp4(Tensor input, Tensor encode_scale) -> (Tensor, Tensor)");
  m.def("_set_auto_prepare(bool enabled) -> bool");
  m.def("_warmup(int device_index) -> ()");
}

#define CAKE_MOE_DEVICE_OPERATORS(m)                                          \
  m.impl("fused_moe", TORCH_BOX(&cake_moe::fused_moe));                       \
  m.impl("fused_moe_functional", TORCH_BOX(&cake_moe::fused_moe_functional)); \
  m.impl("prepare_workspace", TORCH_BOX(&cake_moe::prepare_workspace));       \
  m.impl("forget_workspace", TORCH_BOX(&cake_moe::forget_workspace));         \
  m.impl("quantize_nvfp4", TORCH_BOX(&cake_moe::quantize_nvfp4))

STABLE_TORCH_LIBRARY_IMPL(cake, CPU, m) { CAKE_MOE_DEVICE_OPERATORS(m); }
STABLE_TORCH_LIBRARY_IMPL(cake, CUDA, m) { CAKE_MOE_DEVICE_OPERATORS(m); }
STABLE_TORCH_LIBRARY_IMPL(cake, CompositeExplicitAutograd, m) {
  m.impl("workspace_size", TORCH_BOX(&cake_moe::workspace_size));
  m.impl("_set_auto_prepare", TORCH_BOX(&cake_moe::set_auto_prepare));
  m.impl("_warmup", TORCH_BOX(&cake_moe::warmup));
}

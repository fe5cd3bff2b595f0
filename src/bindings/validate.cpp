#include "bindings/validate.h"

#include <array>
#include <string>

#include "plan/workspace.h"

namespace cake_moe {
namespace {

using torch::stable::Tensor;

constexpr char kOp[] = "fused_moe";
constexpr int kNumScales = 6;
constexpr int64_t kCudaWorkspaceAlignment = 128;
constexpr int64_t kAnyTokens = -1;

constexpr std::array<const char*, kNumScales> kScaleNames = {"quant_scales[0]", "quant_scales[1]", "quant_scales[2]",
                                                             "quant_scales[3]", "quant_scales[4]", "quant_scales[5]"};

struct ReadArguments {
  Argument input, ids, route_weights, fc1, fc2;
  std::array<Argument, kNumScales> scales;
  std::optional<Argument> beta, linear_beta;
};

Argument read(const char* name, const Tensor& tensor, std::initializer_list<Dtype> dtypes,
              std::initializer_list<int64_t> shape, Place place) {
  const Argument argument = describe(kOp, name, tensor);
  require_dtype(argument, dtypes);
  require_shape(argument, shape);
  require_place(argument, place);
  require_contiguous(argument);
  require_load_alignment(argument);
  return argument;
}

Argument read_input(const Tensor& tensor) {
  const Argument input = describe(kOp, "input", tensor);
  require_dtype(input, {Dtype::kBFloat16});
  require_shape(input, {kAnyTokens, kHidden});
  if (input.size(0) > kMaxTokens) {
    refuse(kOp, "input", "of at most " + std::to_string(kMaxTokens) + " tokens", std::to_string(input.size(0)));
  }
  require_contiguous(input);
  require_load_alignment(input);
  return input;
}

Argument read_input_encode(const Tensor& tensor, Place place) {
  const Argument scale = describe(kOp, kScaleNames[0], tensor);
  require_dtype(scale, {Dtype::kFloat32});
  require_one_element(scale);
  require_place(scale, place);
  return scale;
}

std::array<Argument, kNumScales> read_scales(const std::vector<Tensor>& tensors, Place place) {
  if (tensors.size() != kNumScales) {
    refuse(kOp, "quant_scales", "a list of 6 tensors", std::to_string(tensors.size()));
  }
  // torch's stable ABI moves the tensors out of a list that TorchScript holds; a second call finds it empty.
  for (const Tensor& tensor : tensors) {
    if (!tensor.defined()) refuse(kOp, "quant_scales", "a new list in every call from TorchScript", "a used one");
  }
  const auto vector = [&](int i) { return read(kScaleNames[i], tensors[i], {Dtype::kFloat32}, {kExperts}, place); };
  const auto blocks = [&](int i, int64_t rows, int64_t groups) {
    return read(kScaleNames[i], tensors[i], {Dtype::kUint8, Dtype::kFloat8E4m3}, {kExperts, rows, groups}, place);
  };
  return {read_input_encode(tensors[0], place),
          blocks(1, kFc1Rows, kFc1Groups),
          vector(2),
          vector(3),
          blocks(4, kFc2Rows, kFc2Groups),
          vector(5)};
}

std::optional<Argument> read_beta(const char* name, const std::optional<Tensor>& tensor, Place place) {
  if (!tensor.has_value()) return std::nullopt;
  return read(name, *tensor, {Dtype::kFloat32}, {kExperts}, place);
}

ReadArguments read_inputs(const FusedMoeArguments& arguments) {
  const Argument input = read_input(arguments.input);
  const Place place = input.place;
  const int64_t tokens = input.size(0);
  return {
      input,
      read("token_selected_experts", arguments.token_selected_experts, {Dtype::kInt32}, {tokens, kTopK}, place),
      read("token_final_scales", arguments.token_final_scales, {Dtype::kBFloat16, Dtype::kFloat32}, {tokens, kTopK},
           place),
      read("fc1_expert_weights", arguments.fc1_expert_weights, {Dtype::kUint8}, {kExperts, kFc1Rows, kFc1RowBytes},
           place),
      read("fc2_expert_weights", arguments.fc2_expert_weights, {Dtype::kUint8}, {kExperts, kFc2Rows, kFc2RowBytes},
           place),
      read_scales(arguments.quant_scales, place),
      read_beta("situ_beta", arguments.situ_beta, place),
      read_beta("situ_linear_beta", arguments.situ_linear_beta, place),
  };
}

template <class Visitor>
void for_each(const ReadArguments& inputs, const Visitor& visit) {
  for (const Argument* argument : {&inputs.input, &inputs.ids, &inputs.route_weights, &inputs.fc1, &inputs.fc2}) {
    visit(*argument);
  }
  for (const Argument& scale : inputs.scales) visit(scale);
  if (inputs.beta) visit(*inputs.beta);
  if (inputs.linear_beta) visit(*inputs.linear_beta);
}

MoeParams params_of(const ReadArguments& inputs) {
  MoeParams params{};
  params.num_tokens = static_cast<int>(inputs.input.size(0));
  params.input = inputs.input.as<uint16_t>();
  params.expert_ids = inputs.ids.as<int32_t>();
  params.route_weights = inputs.route_weights.data;
  params.route_weights_are_float = has_dtype(inputs.route_weights, Dtype::kFloat32);
  params.fc1_weights = inputs.fc1.data;
  params.fc2_weights = inputs.fc2.data;
  params.input_encode = inputs.scales[0].as<float>();
  params.fc1_scales = inputs.scales[1].data;
  params.fc1_alpha = inputs.scales[2].as<float>();
  params.hidden_encode = inputs.scales[3].as<float>();
  params.fc2_scales = inputs.scales[4].data;
  params.fc2_alpha = inputs.scales[5].as<float>();
  params.beta = inputs.beta ? inputs.beta->as<float>() : nullptr;
  params.linear_beta = inputs.linear_beta ? inputs.linear_beta->as<float>() : nullptr;
  return params;
}

bool is_floating(const Argument& argument) {
  return has_dtype(argument, Dtype::kBFloat16) || has_dtype(argument, Dtype::kFloat32) ||
         has_dtype(argument, Dtype::kFloat8E4m3);
}

}  // namespace

FusedMoeCall validate_fused_moe(const FusedMoeArguments& arguments) {
  const ReadArguments inputs = read_inputs(arguments);
  FusedMoeCall call{params_of(inputs), inputs.input.place, std::nullopt};
  const auto require_inference = [recorded = gradients_are_recorded()](const Argument& argument) {
    if (recorded && is_floating(argument)) require_no_grad(argument);
  };
  for_each(inputs, require_inference);
  if (arguments.output != nullptr) {
    const Argument output =
        read("output", *arguments.output, {Dtype::kBFloat16}, {inputs.input.size(0), kHidden}, call.place);
    require_inference(output);
    call.workspace = describe(kOp, "workspace", *arguments.workspace);
    for_each(inputs, [&](const Argument& input) {
      require_disjoint(output, input);
      require_disjoint(*call.workspace, input);
    });
    require_disjoint(output, *call.workspace);
    call.params.output = output.writable<uint16_t>();
  }
  return call;
}

WorkspaceKey validate_workspace(const Argument& workspace, int num_tokens, Place place) {
  require_dtype(workspace, {Dtype::kUint8, Dtype::kInt8});
  if (workspace.shape.size() != 1) {
    refuse(workspace.op, workspace.name, "1-dimensional", std::to_string(workspace.shape.size()) + " dimensions");
  }
  require_place(workspace, place);
  require_contiguous(workspace);
  require_alignment(workspace, place.is_cpu() ? kCpuAlignment : kCudaWorkspaceAlignment);
  const int64_t needed = workspace_bytes(num_tokens);
  if (workspace.bytes < needed) {
    refuse(workspace.op, workspace.name,
           "of at least " + std::to_string(needed) + " bytes for " + std::to_string(num_tokens) + " tokens",
           std::to_string(workspace.bytes) + " bytes");
  }
  return {place, workspace.data, workspace.bytes};
}

int validate_num_tokens(const char* op, const char* name, int64_t num_tokens) {
  if (num_tokens < 1 || num_tokens > kMaxTokens) {
    refuse(op, name, "in 1.." + std::to_string(kMaxTokens), std::to_string(num_tokens));
  }
  return static_cast<int>(num_tokens);
}

}  // namespace cake_moe

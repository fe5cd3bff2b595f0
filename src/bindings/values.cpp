// CAKE_MOE_VALIDATE=1: rules about values, which need the data on the host.
#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

#include "bindings/validate.h"
#include "numerics/nvfp4.h"

namespace cake_moe {
namespace {

using torch::stable::Tensor;

constexpr char kOp[] = "fused_moe";

Tensor on_host(const Tensor& tensor) {
  if (describe("", "", tensor).place.is_cpu()) return tensor;
  return torch::stable::to(tensor, torch::stable::Device(torch::headeronly::DeviceType::CPU));
}

std::string float_text(float value) {
  std::string text(32, '\0');
  text.resize(std::snprintf(text.data(), text.size(), "%g", static_cast<double>(value)));
  return text;
}

void require_valid_ids(const Tensor& tensor) {
  const Tensor host = on_host(tensor);
  const Argument ids = describe(kOp, "token_selected_experts", host);
  const auto* values = ids.as<int32_t>();
  for (int64_t i = 0; i < ids.numel(); ++i) {
    if (values[i] >= -1 && values[i] < kExperts) continue;
    throw std::out_of_range(message(
        ids.op, ids.name, "-1 or in 0..895",
        std::to_string(values[i]) + " at token " + std::to_string(i / kTopK) + ", slot " + std::to_string(i % kTopK)));
  }
}

// A zero block scale is legal (a block of zeros); a sign or a NaN is not (the matrix instructions ignore the sign).
void require_valid_block_scales(const char* name, const Tensor& tensor) {
  const Tensor host = on_host(tensor);
  const Argument scales = describe(kOp, name, host);
  const int64_t per_expert = scales.numel() / kExperts;
  for (int64_t expert = 0; expert < kExperts; ++expert) {
    const uint8_t* codes = scales.data + expert * per_expert;
    uint8_t largest = 0;
    for (int64_t i = 0; i < per_expert; ++i) largest = std::max(largest, codes[i]);
    if (largest < kE4m3Nan) continue;
    refuse(kOp, name, "free of NaN and of negative scales",
           "e4m3 code " + std::to_string(largest) + " at expert " + std::to_string(expert));
  }
}

}  // namespace

bool value_checks_enabled() {
  const char* value = std::getenv("CAKE_MOE_VALIDATE");
  return value != nullptr && std::string_view(value) == "1";
}

void require_finite_positive(const char* op, const char* name, const Tensor& tensor) {
  const Tensor host = on_host(tensor);
  const Argument values = describe(op, name, host);
  for (int64_t i = 0; i < values.numel(); ++i) {
    const float value = values.as<float>()[i];
    if (std::isfinite(value) && value > 0.0f) continue;
    const std::string place = values.numel() == 1 ? "" : " at expert " + std::to_string(i);
    refuse(op, name, "finite and positive", float_text(value) + place);
  }
}

void validate_values(const FusedMoeArguments& arguments) {
  if (!value_checks_enabled()) return;
  require_valid_ids(arguments.token_selected_experts);
  require_finite_positive(kOp, "quant_scales[0]", arguments.quant_scales[0]);
  require_finite_positive(kOp, "quant_scales[2]", arguments.quant_scales[2]);
  require_finite_positive(kOp, "quant_scales[3]", arguments.quant_scales[3]);
  require_finite_positive(kOp, "quant_scales[5]", arguments.quant_scales[5]);
  if (arguments.situ_beta) require_finite_positive(kOp, "situ_beta", *arguments.situ_beta);
  if (arguments.situ_linear_beta) require_finite_positive(kOp, "situ_linear_beta", *arguments.situ_linear_beta);
  require_valid_block_scales("quant_scales[1]", arguments.quant_scales[1]);
  require_valid_block_scales("quant_scales[4]", arguments.quant_scales[4]);
}

}  // namespace cake_moe

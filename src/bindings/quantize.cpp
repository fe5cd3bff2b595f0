#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/ops.h>

#include <stdexcept>
#include <vector>

#include "bindings/ops.h"
#include "bindings/thread_pool.h"
#include "bindings/torch_cuda.h"
#include "bindings/validate.h"
#include "kernels/cpu/backend.h"
#if CAKE_WITH_CUDA
#include "kernels/quantize/launch.h"
#endif

namespace cake_moe {
namespace {

using torch::headeronly::ScalarType;

constexpr char kOp[] = "quantize_nvfp4";

// [..., K] with `elements` of K in one byte.
Tensor bytes_like(const Argument& input, int64_t elements) {
  std::vector<int64_t> shape(input.shape.begin(), input.shape.end());
  shape.back() /= elements;
  return torch::stable::new_empty(*input.tensor, shape, ScalarType::Byte);
}

void validate(const Argument& input, const Argument& encode) {
  require_dtype(input, {Dtype::kBFloat16});
  if (input.shape.empty() || input.shape.back() % kGroup != 0) {
    refuse(kOp, input.name, "of a last dimension that is a multiple of 16",
           input.shape.empty() ? "0 dimensions" : std::to_string(input.shape.back()));
  }
  require_contiguous(input);
  require_load_alignment(input);
  require_dtype(encode, {Dtype::kFloat32});
  require_one_element(encode);
  require_place(encode, input.place);
  if (gradients_are_recorded()) {
    require_no_grad(input);
    require_no_grad(encode);
  }
  if (value_checks_enabled()) require_finite_positive(kOp, encode.name, *encode.tensor);
}

void run_on_gpu([[maybe_unused]] const uint16_t* x, [[maybe_unused]] int64_t rows, [[maybe_unused]] int64_t cols,
                [[maybe_unused]] const float* encode, [[maybe_unused]] uint8_t* codes, [[maybe_unused]] uint8_t* scales,
                Place place) {
  [[maybe_unused]] const int sm_count = torch_cuda::gpu_problem(kOp, place, 1).sm_count;
#if CAKE_WITH_CUDA
  const torch::stable::accelerator::DeviceGuard guard(place.cuda_index);
  const char* error = quantize_cuda(x, rows, cols, encode, codes, scales, sm_count, torch_cuda::current_stream(place));
  if (error != nullptr) throw std::runtime_error(std::string(kOp) + ": " + error);
#endif
}

}  // namespace

std::tuple<Tensor, Tensor> quantize_nvfp4(const Tensor& input_tensor, const Tensor& encode_scale) {
  const Argument input = describe(kOp, "input", input_tensor);
  const Argument encode = describe(kOp, "encode_scale", encode_scale);
  validate(input, encode);
  const Tensor packed = bytes_like(input, 2);
  const Tensor scales = bytes_like(input, kGroup);
  if (input.numel() == 0) return {packed, scales};
  const int64_t cols = input.shape.back();
  const int64_t rows = input.numel() / cols;
  auto* codes = static_cast<uint8_t*>(packed.mutable_data_ptr());
  auto* scale_codes = static_cast<uint8_t*>(scales.mutable_data_ptr());
  if (input.place.is_cpu()) {
    cpu::quantize(input.as<uint16_t>(), rows, cols, *encode.as<float>(), codes, scale_codes, torch_threads());
  } else {
    run_on_gpu(input.as<uint16_t>(), rows, cols, encode.as<float>(), codes, scale_codes, input.place);
  }
  return {packed, scales};
}

}  // namespace cake_moe

#include "bindings/argument.h"

#include <torch/csrc/stable/c/shim.h>
#include <torch/csrc/stable/stableivalue_conversions.h>

#include <algorithm>
#include <array>
#include <stdexcept>

namespace cake_moe {
namespace {

using torch::stable::Tensor;

constexpr int64_t kGpuLoadBytes = 16;

struct DtypeName {
  int32_t number;
  const char* name;
};

// Dtypes that a caller may have passed by mistake are named too; the newest ones have no stable number and are printed
// as one.
const std::array<DtypeName, 17>& dtype_names() {
  static const std::array<DtypeName, 17> names{{
      {aoti_torch_dtype_bfloat16(), "bfloat16"},
      {aoti_torch_dtype_float32(), "float32"},
      {aoti_torch_dtype_int32(), "int32"},
      {aoti_torch_dtype_uint8(), "uint8"},
      {aoti_torch_dtype_int8(), "int8"},
      {aoti_torch_dtype_float8_e4m3fn(), "float8_e4m3fn"},
      {aoti_torch_dtype_float16(), "float16"},
      {aoti_torch_dtype_float64(), "float64"},
      {aoti_torch_dtype_int64(), "int64"},
      {aoti_torch_dtype_int16(), "int16"},
      {aoti_torch_dtype_uint16(), "uint16"},
      {aoti_torch_dtype_uint32(), "uint32"},
      {aoti_torch_dtype_uint64(), "uint64"},
      {aoti_torch_dtype_bool(), "bool"},
      {aoti_torch_dtype_float8_e5m2(), "float8_e5m2"},
      {aoti_torch_dtype_float8_e4m3fnuz(), "float8_e4m3fnuz"},
      {aoti_torch_dtype_complex64(), "complex64"},
  }};
  return names;
}

// The table starts with the dtypes of enum Dtype, in its order.
const DtypeName& entry(Dtype dtype) { return dtype_names()[static_cast<size_t>(dtype)]; }

std::string dtype_name(int32_t number) {
  for (const DtypeName& known : dtype_names()) {
    if (known.number == number) return known.name;
  }
  return "dtype number " + std::to_string(number);
}

std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "[";
  for (const int64_t size : shape) {
    if (text.size() > 1) text += ", ";
    text += size < 0 ? "M" : std::to_string(size);
  }
  return text + "]";
}

Place place_of(const Tensor& tensor) {
  int32_t type;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor.get(), &type));
  if (type != aoti_torch_device_type_cuda()) return {-1};
  int32_t index;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(tensor.get(), &index));
  return {index};
}

// Bytes from the start of the storage to the end of the last element.
int64_t needed_storage(const Argument& argument) {
  if (argument.bytes == 0) return 0;
  int64_t last;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_storage_offset(argument.tensor->get(), &last));
  for (size_t dim = 0; dim < argument.shape.size(); ++dim) last += (argument.shape[dim] - 1) * argument.strides[dim];
  return (last + 1) * argument.element_bytes;
}

// A storage can be freed or shrunk under a tensor (untyped_storage().resize_).
void require_storage(const Argument& argument) {
  int64_t size;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_storage_size(argument.tensor->get(), &size));
  const int64_t needed = needed_storage(argument);
  if (size < needed) {
    refuse(argument.op, argument.name, "backed by " + std::to_string(needed) + " bytes of storage",
           std::to_string(size));
  }
}

// The shims cannot ask a tensor whether it requires grad. A view of one that does has a grad_fn, that is, it is no leaf
// (autograd's fallback for operators without a derivative does not disable autograd around the kernel).
bool would_record_grad(const Argument& argument) {
  AtenTensorHandle view;
  TORCH_ERROR_CODE_CHECK(
      aoti_torch_as_strided(argument.tensor->get(), argument.shape.data(), argument.strides.data(), &view));
  StableIValue stack[1] = {torch::stable::detail::from(view)};
  TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::is_leaf", "", stack, TORCH_ABI_VERSION));
  return !torch::stable::detail::to<bool>(stack[0]);
}

}  // namespace

std::string to_string(Place place) { return place.is_cpu() ? "cpu" : "cuda:" + std::to_string(place.cuda_index); }

int64_t Argument::numel() const {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

Argument describe(const char* op, const char* name, const Tensor& tensor) {
  if (!tensor.defined()) refuse(op, name, "a tensor", "None");
  Argument argument{};
  argument.op = op;
  argument.name = name;
  argument.tensor = &tensor;
  argument.place = place_of(tensor);
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor.get(), &argument.dtype));
  argument.element_bytes = static_cast<int64_t>(aoti_torch_dtype_element_size(argument.dtype));
  const auto dims = static_cast<size_t>(tensor.dim());
  int64_t* sizes;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_sizes(tensor.get(), &sizes));
  argument.shape = {sizes, dims};
  int64_t* strides;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_strides(tensor.get(), &strides));
  argument.strides = {strides, dims};
  argument.bytes = argument.numel() * argument.element_bytes;
  argument.data = static_cast<const uint8_t*>(tensor.const_data_ptr());
  require_storage(argument);
  return argument;
}

std::string message(const char* op, const char* name, const std::string& rule, const std::string& got) {
  return std::string(op) + ": " + name + " must be " + rule + ", got " + got;
}

void refuse(const char* op, const char* name, const std::string& rule, const std::string& got) {
  throw std::invalid_argument(message(op, name, rule, got));
}

bool has_dtype(const Argument& argument, Dtype dtype) { return argument.dtype == entry(dtype).number; }

void require_dtype(const Argument& argument, std::initializer_list<Dtype> allowed) {
  for (const Dtype dtype : allowed) {
    if (has_dtype(argument, dtype)) return;
  }
  std::string rule;
  for (const Dtype dtype : allowed) rule += (rule.empty() ? "" : " or ") + std::string(entry(dtype).name);
  refuse(argument.op, argument.name, rule, dtype_name(argument.dtype));
}

void require_shape(const Argument& argument, std::initializer_list<int64_t> shape) {
  const auto fits = [](int64_t wanted, int64_t size) { return wanted < 0 || wanted == size; };
  if (!std::equal(shape.begin(), shape.end(), argument.shape.begin(), argument.shape.end(), fits)) {
    refuse(argument.op, argument.name, "of shape " + shape_text(shape), shape_text(argument.shape));
  }
}

void require_place(const Argument& argument, Place place) {
  if (argument.place != place) refuse(argument.op, argument.name, "on " + to_string(place), to_string(argument.place));
}

void require_contiguous(const Argument& argument) {
  if (!argument.tensor->is_contiguous()) {
    refuse(argument.op, argument.name, "contiguous", "strides " + shape_text(argument.strides));
  }
}

void require_alignment(const Argument& argument, int64_t alignment) {
  const int64_t excess = static_cast<int64_t>(reinterpret_cast<uintptr_t>(argument.data) % alignment);
  if (excess != 0) {
    refuse(argument.op, argument.name, "aligned to " + std::to_string(alignment) + " bytes",
           "an address " + std::to_string(excess) + " bytes past a multiple");
  }
}

void require_load_alignment(const Argument& argument) {
  require_alignment(argument,
                    argument.place.is_cpu() ? argument.element_bytes : std::max(argument.element_bytes, kGpuLoadBytes));
}

void require_one_element(const Argument& argument) {
  if (argument.numel() != 1) refuse(argument.op, argument.name, "of one element", shape_text(argument.shape));
}

void require_disjoint(const Argument& written, const Argument& other) {
  const uint8_t* begin = std::max(written.data, other.data);
  const uint8_t* end = std::min(written.data + written.bytes, other.data + other.bytes);
  if (written.place == other.place && begin < end) {
    refuse(written.op, written.name, std::string("disjoint from ") + other.name,
           "an overlap of " + std::to_string(end - begin) + " bytes");
  }
}

bool gradients_are_recorded() { return aoti_torch_grad_mode_is_enabled(); }

void require_no_grad(const Argument& argument) {
  if (would_record_grad(argument)) {
    throw std::runtime_error(
        message(argument.op, argument.name, "without gradient (inference only)", "requires_grad=True"));
  }
}

}  // namespace cake_moe

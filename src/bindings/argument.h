// A tensor argument as the rules see it, and the one style in which they refuse it.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace cake_moe {

// Where a tensor lies: -1 is the CPU, 0.. a CUDA device. Other device types never reach a kernel of this library.
struct Place {
  int32_t cuda_index;

  bool is_cpu() const { return cuda_index < 0; }
  bool operator==(const Place&) const = default;
};
std::string to_string(Place place);

enum class Dtype : uint8_t { kBFloat16, kFloat32, kInt32, kUint8, kInt8, kFloat8E4m3 };

// Read once through torch's C shims. `shape` and `strides` borrow from the tensor.
struct Argument {
  const char* op;    // the function that the caller called
  const char* name;  // the argument's name in its schema
  const torch::stable::Tensor* tensor;
  int32_t dtype;  // torch's number
  Place place;
  std::span<const int64_t> shape;
  std::span<const int64_t> strides;  // in elements
  int64_t element_bytes;
  int64_t bytes;
  const uint8_t* data;

  int64_t size(int dim) const { return shape[dim]; }
  int64_t numel() const;
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(data);
  }
  // For arguments that the schema marks as written to.
  template <class T>
  T* writable() const {
    return reinterpret_cast<T*>(const_cast<uint8_t*>(data));
  }
};
Argument describe(const char* op, const char* name, const torch::stable::Tensor& tensor);

// "<op>: <name> must be <rule>, got <got>", as std::invalid_argument (Python: ValueError).
[[noreturn]] void refuse(const char* op, const char* name, const std::string& rule, const std::string& got);
std::string message(const char* op, const char* name, const std::string& rule, const std::string& got);

void require_dtype(const Argument& argument, std::initializer_list<Dtype> allowed);
bool has_dtype(const Argument& argument, Dtype dtype);
// -1 in `shape` stands for any number of tokens, printed as M.
void require_shape(const Argument& argument, std::initializer_list<int64_t> shape);
void require_place(const Argument& argument, Place place);
void require_contiguous(const Argument& argument);
void require_alignment(const Argument& argument, int64_t alignment);
// The kernels' own need: an element on the CPU, a 16-byte vector load on a GPU.
void require_load_alignment(const Argument& argument);
void require_one_element(const Argument& argument);
// `written` must not share a byte with `other`.
void require_disjoint(const Argument& written, const Argument& other);
bool gradients_are_recorded();
// This library has no backward: std::runtime_error for an argument whose gradient would be recorded. To be asked only
// where gradients are recorded: it costs half a microsecond, two calls of torch's dispatcher.
void require_no_grad(const Argument& argument);

}  // namespace cake_moe

// Tensor maps from the driver's parameters, with the driver's rules.
#pragma once

#include <cstdint>

#include "shim/tensor_map_handle.h"

namespace ptxrun {

// Parameters of cuTensorMapEncodeTiled; enumerations by their value in cuda.h.
struct TensorMapDescription {
  uint32_t dtype;
  uint32_t rank;
  uint64_t base;
  const uint64_t* dims;             // [rank] elements
  const uint64_t* strides;          // [rank - 1] bytes
  const uint32_t* box;              // [rank] elements
  const uint32_t* element_strides;  // [rank]
  uint32_t interleave;
  uint32_t swizzle;
  uint32_t l2_promotion;
  uint32_t oob_fill;
};

// nullptr, or which rule of the driver the description breaks; the handle is written only on success.
const char* encode_tensor_map(const TensorMapDescription& from, TensorMapHandle& to);

// Bits of an element; 0 for an unknown dtype.
int tensor_map_element_bits(uint32_t dtype);

}  // namespace ptxrun

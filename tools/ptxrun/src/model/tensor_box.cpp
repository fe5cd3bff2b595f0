#include "model/tensor_box.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "model/smem_layout.h"
#include "shim/tensor_map_encode.h"

namespace ptxrun::model {
namespace {

constexpr int kMaxRank = 5;
constexpr uint32_t kUnit = 16;  // bytes that a swizzle keeps together

// Values of the driver's CUtensorMapDataType.
enum DataType : uint8_t {
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
  kFloat32Ftz = 10,
  kTfloat32 = 11,
  kTfloat32Ftz = 12,
  k4BitAlign16 = 14,
  k6BitAlign16 = 15
};

uint32_t swizzle_span(const TensorMapHandle& map) {
  constexpr uint32_t kSpans[] = {0, 32, 64, 128};
  return map.swizzle < 4 ? kSpans[map.swizzle] : 0;
}

int64_t bits_to_bytes(int64_t elements, int bits) { return elements * bits / 8; }

uint32_t traversed(const TensorMapHandle& map, int dim) {
  return (map.box[dim] + map.element_strides[dim] - 1u) / map.element_strides[dim];
}

// One row along dimension 0; `row_inside` says whether the other coordinates lie in the tensor.
class RowCopy {
 public:
  RowCopy(const TensorMapHandle& map, uint32_t shared, std::vector<BoxRun>& runs)
      : map_(map), bits_(tensor_map_element_bits(map.dtype)), span_(swizzle_span(map)), next_(shared), runs_(runs) {}

  void append(int64_t column, int64_t row_offset, bool row_inside) {
    const uint32_t count = traversed(map_, 0);
    const uint32_t stride = map_.element_strides[0];
    // Elements [first, last) lie inside the tensor.
    const auto extent = static_cast<int64_t>(map_.dims[0]);
    const int64_t first = std::clamp<int64_t>((-column + stride - 1) / stride, 0, count);
    const int64_t last = std::clamp<int64_t>((extent - column + stride - 1) / stride, first, count);
    const bool none = !row_inside || column >= extent || first == last;
    append_part(column, row_offset, 0, none ? count : first, false);
    if (none) return;
    append_part(column, row_offset, first, last, true);
    append_part(column, row_offset, last, count, false);
  }

 private:
  void append_part(int64_t column, int64_t row_offset, int64_t first, int64_t last, bool inside) {
    const uint32_t stride = map_.element_strides[0];
    if (stride == 1 || !inside) {
      append_bytes(row_offset + bits_to_bytes(column + first, bits_),
                   static_cast<uint32_t>(bits_to_bytes(last - first, bits_)), inside);
      return;
    }
    for (int64_t i = first; i < last; ++i) {
      append_bytes(row_offset + bits_to_bytes(column + i * stride, bits_), static_cast<uint32_t>(bits_ / 8), true);
    }
  }

  void append_bytes(int64_t offset, uint32_t bytes, bool inside) {
    while (bytes > 0) {
      const uint32_t piece = span_ == 0 ? bytes : std::min(bytes, kUnit - next_ % kUnit);
      runs_.push_back(
          {inside ? map_.base + static_cast<uint64_t>(offset) : 0, swizzle_address(next_, span_), piece, inside});
      next_ += piece;
      offset += piece;
      bytes -= piece;
    }
  }

  const TensorMapHandle& map_;
  int bits_;
  uint32_t span_;
  uint32_t next_;
  std::vector<BoxRun>& runs_;
};

bool inside_dim(const TensorMapHandle& map, int dim, int64_t index) {
  return index >= 0 && index < static_cast<int64_t>(map.dims[dim]);
}

}  // namespace

uint32_t box_bytes(const TensorMapHandle& map) {
  int64_t elements = 1;
  for (int dim = 0; dim < map.rank; ++dim) elements *= traversed(map, dim);
  return static_cast<uint32_t>(bits_to_bytes(elements, tensor_map_element_bits(map.dtype)));
}

Problems check_box_copy(const TensorMapHandle& map, uint32_t shared) {
  Problems problems;
  if (map.magic != kTensorMapMagic) {
    problems.push_back({"tensor_map.invalid", "the 128 bytes are not a tensor map"});
    return problems;
  }
  if (map.interleave != 0) problems.push_back({"tensor_map.interleave", "interleaved layouts are not modelled"});
  if (map.swizzle > 3) problems.push_back({"tensor_map.swizzle", "only swizzles with 16-byte atoms are modelled"});
  if (map.dtype == k4BitAlign16 || map.dtype == k6BitAlign16) {
    problems.push_back({"tensor_map.type", "elements padded to 16 bytes are not modelled"});
  }
  constexpr uint32_t kAlignment = 128;
  if (shared % kAlignment != 0) {
    problems.push_back(
        {"tensor_map.shared_alignment", "shared address " + std::to_string(shared) + " is not a multiple of 128"});
  }
  return problems;
}

void box_runs(const TensorMapHandle& map, const int32_t* coordinates, uint32_t shared, std::vector<BoxRun>& runs) {
  RowCopy copy(map, shared, runs);
  uint32_t counts[kMaxRank] = {1, 1, 1, 1, 1};
  for (int dim = 1; dim < map.rank; ++dim) counts[dim] = traversed(map, dim);
  uint32_t at[kMaxRank] = {};
  for (bool more = true; more;) {
    int64_t offset = 0;
    bool inside = true;
    for (int dim = 1; dim < map.rank; ++dim) {
      const int64_t index = int64_t{coordinates[dim]} + int64_t{at[dim]} * map.element_strides[dim];
      inside = inside && inside_dim(map, dim, index);
      offset += index * static_cast<int64_t>(map.strides[dim - 1]);
    }
    copy.append(coordinates[0], offset, inside);
    more = false;
    for (int dim = 1; dim < map.rank && !more; ++dim) {
      more = ++at[dim] < counts[dim];
      if (!more) at[dim] = 0;
    }
  }
}

void gather4_runs(const TensorMapHandle& map, const int32_t* coordinates, uint32_t shared, std::vector<BoxRun>& runs) {
  RowCopy copy(map, shared, runs);
  for (int i = 1; i <= 4; ++i) {
    const int64_t row = coordinates[i];
    copy.append(coordinates[0], row * static_cast<int64_t>(map.strides[0]), inside_dim(map, 1, row));
  }
}

void fill_pattern(const TensorMapHandle& map, uint8_t pattern[16]) {
  std::memset(pattern, 0, 16);
  if (map.oob_fill == 0) return;
  uint64_t nan = 0;
  switch (map.dtype) {
    case kFloat16:
    case kBfloat16:
      nan = 0x7FFF;
      break;
    case kFloat64:
      nan = 0x7FFF'FFFF'FFFF'FFFF;
      break;
    case kFloat32:
    case kFloat32Ftz:
    case kTfloat32:
    case kTfloat32Ftz:
      nan = 0x7FFF'FFFF;
      break;
    default:
      return;
  }
  const auto bytes = static_cast<size_t>(tensor_map_element_bits(map.dtype) / 8);
  for (size_t at = 0; at < 16; at += bytes) std::memcpy(pattern + at, &nan, bytes);
}

}  // namespace ptxrun::model

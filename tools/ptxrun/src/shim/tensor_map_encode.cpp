#include "shim/tensor_map_encode.h"

#include <initializer_list>

namespace ptxrun {
namespace {

// Values of the driver's enumerations.
constexpr uint32_t kFloat16 = 6, k4BitAlign8 = 13, k4BitAlign16 = 14, k6BitAlign16 = 15;
constexpr uint32_t kInterleaveNone = 0, kInterleave16 = 1, kInterleave32 = 2;
constexpr uint32_t kSwizzleNone = 0, kSwizzle32 = 1, kSwizzle64 = 2, kSwizzle128Atom64 = 6;
constexpr uint32_t kLastL2Promotion = 3, kLastOobFill = 1;
constexpr int kElementBits[] = {8, 16, 32, 32, 64, 64, 16, 32, 64, 16, 32, 32, 32, 4, 4, 6};

int swizzle_span(uint32_t swizzle) {
  switch (swizzle) {
    case kSwizzle32:
      return 32;
    case kSwizzle64:
      return 64;
    default:
      return 128;
  }
}

bool is_packed_to_16(uint32_t dtype) { return dtype == k4BitAlign16 || dtype == k6BitAlign16; }

const char* check_modes(const TensorMapDescription& from) {
  if (tensor_map_element_bits(from.dtype) == 0) return "unknown data type";
  if (from.rank < 1 || from.rank > 5) return "the rank must be in 1..5";
  if (from.interleave > kInterleave32) return "unknown interleave";
  if (from.interleave != kInterleaveNone && from.rank < 3) return "interleaved layouts need a rank of at least 3";
  if (from.swizzle > kSwizzle128Atom64) return "unknown swizzle";
  if (from.interleave == kInterleave32 && from.swizzle != kSwizzle32) return "32-byte interleave needs 32-byte swizzle";
  if (from.l2_promotion > kLastL2Promotion) return "unknown L2 promotion";
  if (from.oob_fill > kLastOobFill) return "unknown out-of-bounds fill";
  if (from.oob_fill != 0 && (from.dtype < kFloat16 || from.dtype >= k4BitAlign8)) return "NaN fill needs a float type";
  return nullptr;
}

const char* check_address(const TensorMapDescription& from) {
  const uint64_t alignment = from.interleave == kInterleave32 || is_packed_to_16(from.dtype) ? 32 : 16;
  if (from.base % alignment != 0) return "the address must be a multiple of 16, or 32 for this type or interleave";
  for (uint32_t i = 0; i < from.rank; ++i) {
    if (from.dims[i] < 1 || from.dims[i] > uint64_t{1} << 32) return "every size must be in 1..2^32";
    if (i + 1 == from.rank) break;
    if (from.strides[i] % alignment != 0) return "every stride must be a multiple of 16, or 32";
    if (from.strides[i] >= uint64_t{1} << 40) return "every stride must be below 2^40";
  }
  if (is_packed_to_16(from.dtype) && from.dims[0] % 128 != 0) return "packed elements need a multiple of 128 a row";
  if (from.dtype == k4BitAlign8 && from.dims[0] % 2 != 0) return "4-bit elements need an even number a row";
  return nullptr;
}

const char* check_box(const TensorMapDescription& from) {
  for (uint32_t i = 0; i < from.rank; ++i) {
    if (from.box[i] < 1 || from.box[i] > 256) return "every box size must be in 1..256";
    if (from.element_strides[i] < 1 || from.element_strides[i] > 8) return "every element stride must be in 1..8";
  }
  if (from.interleave != kInterleaveNone) return nullptr;
  // A 16-byte piece of shared memory holds 16 packed elements of 4 or 6 bits.
  const int bits = is_packed_to_16(from.dtype) ? 8 : tensor_map_element_bits(from.dtype);
  const uint64_t inner = uint64_t{from.box[0]} * bits;
  if (inner % 128 != 0) return "the box's inner size must be a multiple of 16 bytes";
  if (is_packed_to_16(from.dtype) && from.box[0] != 128) return "packed elements need a box of 128 a row";
  if (from.swizzle != kSwizzleNone && inner > uint64_t{8} * swizzle_span(from.swizzle)) {
    return "the box's inner size exceeds the swizzle's span";
  }
  return nullptr;
}

}  // namespace

int tensor_map_element_bits(uint32_t dtype) {
  return dtype < sizeof(kElementBits) / sizeof(kElementBits[0]) ? kElementBits[dtype] : 0;
}

const char* encode_tensor_map(const TensorMapDescription& from, TensorMapHandle& to) {
  for (const auto check : {check_modes, check_address, check_box}) {
    if (const char* error = check(from)) return error;
  }
  TensorMapHandle handle{};
  handle.magic = kTensorMapMagic;
  handle.base = from.base;
  for (uint32_t i = 0; i < from.rank; ++i) {
    handle.dims[i] = from.dims[i];
    if (i + 1 < from.rank) handle.strides[i] = from.strides[i];
    handle.box[i] = static_cast<uint16_t>(from.box[i]);
    handle.element_strides[i] = static_cast<uint8_t>(from.element_strides[i]);
  }
  handle.rank = static_cast<uint8_t>(from.rank);
  handle.dtype = static_cast<uint8_t>(from.dtype);
  handle.interleave = static_cast<uint8_t>(from.interleave);
  handle.swizzle = static_cast<uint8_t>(from.swizzle);
  handle.l2_promotion = static_cast<uint8_t>(from.l2_promotion);
  handle.oob_fill = static_cast<uint8_t>(from.oob_fill);
  to = handle;
  return nullptr;
}

}  // namespace ptxrun

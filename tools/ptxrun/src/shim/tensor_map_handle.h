// The 128 bytes that stand for a tensor map. They describe themselves, so a handle can be a kernel parameter, lie in
// memory and be copied there; no table has to know it. Written by the launch shim and by ptxrun.TensorMap, read by the
// interpreter.
#pragma once

#include <cstdint>

namespace ptxrun {

inline constexpr uint64_t kTensorMapMagic = 0x4d54'6e75'7278'7470;  // "ptxrunTM"

// The values of dtype, interleave, swizzle, l2_promotion and oob_fill are those of the driver's enumerations
// (CUtensorMapDataType, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill).
struct alignas(64) TensorMapHandle {
  uint64_t magic;
  uint64_t base;        // address in global memory
  uint64_t dims[5];     // elements; dims[0] is contiguous
  uint64_t strides[4];  // bytes between neighbours along dims 1..4
  uint16_t box[5];      // elements, at most 256
  uint8_t element_strides[5];
  uint8_t rank;  // 1..5; entries of the arrays above beyond it are 0
  uint8_t dtype;
  uint8_t interleave;
  uint8_t swizzle;
  uint8_t l2_promotion;
  uint8_t oob_fill;
  uint8_t reserved[19];
};
static_assert(sizeof(TensorMapHandle) == 128);

}  // namespace ptxrun

// Matrix operands in shared memory: the 64-bit descriptors of wgmma and tcgen05, and where each element lies.
#pragma once

#include <cstdint>

#include "model/problem.h"

namespace ptxrun::model {

// Which extent of the operand is contiguous in memory.
enum class Major { kK, kMN };

// Addresses are byte offsets in the shared window of the CTA.
struct SmemMatrix {
  uint32_t start = 0;
  uint32_t leading = 0;      // bytes; K-major without swizzle: between 16-byte columns; MN-major: see element_address
  uint32_t stride = 0;       // bytes; between groups of 8 rows (K-major) or 8 columns (MN-major, swizzled)
  uint32_t base_offset = 0;  // phase of the swizzle pattern's first row, in 128-byte lines
  uint32_t swizzle = 0;      // span in bytes: 0, 32, 64 or 128

  friend bool operator==(const SmemMatrix&, const SmemMatrix&) = default;
};

// Bits 0-13 start >> 4, 16-29 leading >> 4, 32-45 stride >> 4, 49-51 base offset, 62-63 swizzle.
SmemMatrix decode_wgmma_descriptor(uint64_t descriptor, Problems& problems);
// The same with 46-48 = 0b001 and the swizzle in 61-63.
SmemMatrix decode_tcgen05_descriptor(uint64_t descriptor, Problems& problems);

// Whether strides and start suit an operand of `rows` (M or N) by `row_bytes` (K-major) or by `k` columns (MN-major).
void check_smem_matrix(const SmemMatrix& matrix, Major major, int rows, int k, int element_bits, Problems& problems);

// The 16-byte units of `address` permuted within the span: XOR with the line's number in the pattern of 8 lines.
// A line is 128 bytes; narrower spans share it.
uint32_t swizzle_address(uint32_t address, uint32_t span, uint32_t base_offset = 0);

// First byte of element (row, k), row counting along M or N. Four-bit elements: the byte that holds it.
uint32_t element_address(const SmemMatrix& matrix, Major major, int row, int k, int element_bits);

}  // namespace ptxrun::model

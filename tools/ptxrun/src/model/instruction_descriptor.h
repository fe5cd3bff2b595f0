// The 32-bit instruction descriptor of tcgen05.mma.
#pragma once

#include <cstdint>

#include "model/mma_arithmetic.h"
#include "model/problem.h"

namespace ptxrun::model {

enum class MmaKind { kF16, kTf32, kF8f6f4, kI8, kMxf8f6f4, kMxf4, kMxf4nvf4 };

constexpr bool is_block_scaled(MmaKind kind) { return kind >= MmaKind::kMxf8f6f4; }
constexpr bool is_packed_fp4(MmaKind kind) { return kind == MmaKind::kMxf4 || kind == MmaKind::kMxf4nvf4; }

struct InstructionDescriptor {
  int m = 0, n = 0, k = 0;
  const FloatFormat* a_format = nullptr;  // nullptr: not modelled, a problem says so
  const FloatFormat* b_format = nullptr;
  bool negate_a = false, negate_b = false;
  bool transpose_a = false, transpose_b = false;
  bool f16_accumulators = false;
  ScaleFormat scale_format = ScaleFormat::kUe4m3;
  int scale_a_id = 0, scale_b_id = 0;  // byte of the 32-bit cells from which scales are taken
};

// `scale_vector`: scales a row of one step (1, 2 or 4), 0 without block scaling. Problems name each illegal field.
InstructionDescriptor decode_instruction_descriptor(uint32_t descriptor, MmaKind kind, int scale_vector, int cta_group,
                                                    Problems& problems);

}  // namespace ptxrun::model

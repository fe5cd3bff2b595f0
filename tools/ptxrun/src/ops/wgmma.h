#pragma once

#include <span>

#include "decode/instruction.h"

namespace ptxrun::ops {

// Accumulators and A registers of a wgmma.mma_async; nothing for other instructions.
std::span<const Operand> wgmma_registers(const Instr& instr);

}  // namespace ptxrun::ops

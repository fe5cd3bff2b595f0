// Tensor memory of an SM: cells only. Allocation rules, shapes and checks live with the tcgen05 family.
#pragma once

#include <cstdint>

namespace ptxrun {

constexpr int kTmemLanes = 128;
constexpr int kTmemColumns = 512;

// Address: lane << 16 | column.
constexpr uint32_t tmem_lane(uint32_t address) { return address >> 16; }
constexpr uint32_t tmem_column(uint32_t address) { return address & 0xFFFF; }

struct TensorMemory {
  uint32_t cells[kTmemLanes][kTmemColumns] = {};
};

}  // namespace ptxrun

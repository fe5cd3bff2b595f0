// Memory accesses of the lanes of a warp by generic-proxy instructions: translation, alignment, coalescing into ranges.
#pragma once

#include <cstdint>

#include "exec/warp.h"
#include "memory/memory.h"

namespace ptxrun {

// Bytes of each lane's access, nullptr for lanes that are inactive or whose address is bad (a finding has been made).
struct LaneBytes {
  uint8_t* at[kWarpLanes];
};

// `bytes` (a power of two) at the address operand of each active lane; the address must be a multiple of it. `used`:
// those of them whose value matters, a bit each (0: all); the others must exist, but count as not accessed.
// `read_only`: as of Access.
void touch_lanes(Warp& warp, LaneMask active, const Operand& address, Space space, uint32_t bytes, Access::Kind kind,
                 Order order, Scope scope, LaneBytes& out, uint32_t used = 0, bool read_only = false);

// Address of an operand with its offset, lane by lane.
void lane_addresses(Warp& warp, const Operand& address, uint64_t (&out)[kWarpLanes]);
uint64_t lane_address(Warp& warp, const Operand& address, int lane);

}  // namespace ptxrun

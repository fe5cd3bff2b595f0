// State spaces of shared memory operands as modifiers spell them.
#pragma once

#include "decode/decoder.h"
#include "exec/warp.h"
#include "memory/memory.h"

namespace ptxrun::ops {

// .shared, .shared::cta, .shared::cluster, or a generic address.
inline Space take_shared_space(Modifiers& modifiers) {
  if (modifiers.take("shared::cluster")) return Space::SharedCluster;
  if (modifiers.take("shared::cta") || modifiers.take("shared")) return Space::Shared;
  return Space::Generic;
}

// The value of a 32- or 64-bit operand in one lane, with an address's displacement.
inline uint64_t lane_value(const Warp& warp, const Operand& op, int lane) {
  const uint64_t value = op.bits == 64 ? warp.in<uint64_t>(op)[lane] : warp.in<uint32_t>(op)[lane];
  const uint64_t moved = value + static_cast<uint64_t>(op.offset);
  return op.bits == 64 ? moved : static_cast<uint32_t>(moved);
}

inline void set_lane_value(Warp& warp, const Operand& op, int lane, uint64_t value) {
  if (op.kind != Operand::Kind::Register) return;
  if (op.bits == 64) {
    warp.out<uint64_t>(op)[lane] = value;
  } else {
    warp.out<uint32_t>(op)[lane] = static_cast<uint32_t>(value);
  }
}

}  // namespace ptxrun::ops

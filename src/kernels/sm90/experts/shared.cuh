// Shared memory of the experts kernel, and which units a CTA computes: every role walks the same sequence of ring
// slots.
#pragma once

#include <cstdint>

#include "kernels/ptx/mbarrier.cuh"
#include "kernels/route/cta_tile.cuh"
#include "kernels/sm90/experts/blocks.cuh"
#include "kernels/sm90/experts/config.h"

namespace cake_moe::sm90::experts {

struct Fc1Slot {
  uint8_t weights[kFc1ItemUnits * kFc1BoxBytes];  // [row][128 bytes], 128-byte swizzle
  uint8_t scales[2 * kFc1ScaleBytes];             // of the one or two 128-row blocks that the item lies in
  Chunk tokens[kTokens][kStageChunks];
};

struct Fc2Slot {
  uint8_t weights[kFc2SlotUnits * kFc2UnitBytes];  // [row][192 bytes]
  uint8_t scales[kFc2ScaleBytes];                  // [6 atoms of 512 bytes]
};

union Slot {
  alignas(1024) Fc1Slot fc1;
  Fc2Slot fc2;
};

struct RouteScratch {
  alignas(16) uint32_t expert_rows[kExperts];
  uint64_t warp_sums[kGroupWarps];
};

using Tile = route::CtaTile;
static_assert(kTokens == route::kCtaTileRows && kMaxRoutes == route::kCtaRoutes);

// A CTA's units of one GEMM, contiguous, so that neighbouring units share scales.
struct Share {
  int begin, end;
};

struct Shared {
  Slot slots[kGroups][kGroupSlots];
  alignas(16) uint8_t zeros[kFc2Chunks * kChunkBytes];
  float exchange[2][kFc1ItemUnits][2][4 * 32];  // [parity][unit][half of its rows]: sums of the other half of K
  union {
    Chunk hidden[kHiddenTiles][kTokens][kFc2Chunks];  // FC2's tokens
    RouteScratch route;
  };
  uint32_t tiles[kMaxRoutes];
  int16_t ids[kMaxRoutes];  // -1 where a route has no expert
  Share fc1, fc2;
  int32_t token_routes[kGroups][kTokens];  // of the producers
  uint64_t slot_arrived[kGroups][kGroupSlots];
  uint64_t slot_consumed[kGroups][kGroupSlots];
  uint64_t sums_arrived[2][kFc1ItemUnits][2];  // as exchange
  uint64_t hidden_arrived[kHiddenTiles];
  uint64_t hidden_consumed[kHiddenTiles];
};
static_assert(sizeof(Shared) <= max_smem_bytes(kCtasPerSm));

// Neighbouring units of one tile.
struct Item {
  int tile, unit, units;
};

// Calls the body until it returns false. Every group has every item of FC1, and in turn one slot of FC2's.
template <typename Body>
__device__ __forceinline__ bool for_each_fc1_item(const Share& share, const Body& body) {
  for (int at = share.begin; at < share.end;) {
    const int unit = at % kFc1Units, left = min(kFc1Units - unit, share.end - at);
    const int items = (left + kFc1ItemUnits - 1) / kFc1ItemUnits;
    const int units = (left + items - 1) / items;
    if (!body(Item{at / kFc1Units, unit, units})) return false;
    at += units;
  }
  return true;
}

template <typename Body>
__device__ __forceinline__ bool for_each_fc2_slot(const Share& share, int group, const Body& body) {
  int turn = 0;
  for (int at = share.begin; at < share.end;) {
    const int unit = at % kFc2Units;
    const int units = min(kFc2SlotUnits - unit % kFc2SlotUnits, share.end - at);
    if (turn++ % kGroups == group && !body(Item{at / kFc2Units, unit, units})) return false;
    at += units;
  }
  return true;
}
static_assert(kFc2Units % kFc2SlotUnits == 0);

// Ring slot and barrier parity of a position in a group's sequence.
struct RingSlot {
  int slot;
  uint32_t phase;
  __device__ explicit RingSlot(uint32_t position) : slot(position % kGroupSlots), phase(position / kGroupSlots & 1) {}
};

}  // namespace cake_moe::sm90::experts

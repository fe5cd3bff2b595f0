// Shared memory of the experts kernel, and which units a CTA computes: every role walks the same sequence of ring
// slots.
#pragma once

#include <cstdint>

#include "kernels/ptx/mbarrier.cuh"
#include "kernels/route/cta_tile.cuh"
#include "kernels/sm90/experts/config.h"
#include "kernels/sm90/fc2/mainloop.cuh"

namespace cake_moe::sm90::experts {

struct Fc1Slot {
  uint8_t weights[kFc1ItemUnits * kFc1BoxBytes];  // [row][128 bytes], 128-byte swizzle
  uint8_t scales[2 * kFc1ScaleBytes];             // of the one or two 128-row blocks that the item lies in
};

using Fc2Slot = fc2::Shared<Fc2>::Slot;

union Slot {
  alignas(1024) Fc1Slot fc1;
  Fc2Slot fc2;
};

using Tile = route::CtaTile;
static_assert(kTokens == route::kCtaTileRows && kMaxRoutes <= route::kCtaRoutes);

// A CTA's units of one GEMM, contiguous, so that neighbouring units share scales.
struct Share {
  int begin, end;
};

struct Shared {
  Slot slots[kGroups][kGroupSlots];
  alignas(1024) uint8_t hidden[kHiddenTiles][Fc2::kTokenBytes];  // fp16 tokens of FC2 by tile, as fc2::Shared::tokens
  alignas(16) uint8_t input[kMaxTokens][kInputPitch];            // fp16 tokens of FC1
  float exchange[2][kFc1ItemUnits][2][4 * 32];  // [parity][unit][half of its rows]: sums of the other half of K
  uint32_t tiles[kMaxRoutes];
  Share fc1, fc2;
  alignas(16) uint32_t route_keys[kMaxRoutes];  // in route order
  uint8_t row_routes[kMaxRoutes];               // as row_route, with kFirstOfTile
  int16_t route_rows[kMaxRoutes];               // as route_row
  uint64_t prepared;                            // routed and quantised
  uint64_t slot_arrived[kGroups][kGroupSlots];
  uint64_t slot_consumed[kGroups][kGroupSlots];
  uint64_t sums_arrived[2][kFc1ItemUnits][2];  // as exchange
  uint64_t hidden_arrived[kHiddenTiles];
  uint64_t hidden_consumed[kHiddenTiles];
  uint64_t stored;  // the CTA's y
};
static_assert(sizeof(Shared) <= max_smem_bytes(kCtasPerSm));

// Neighbouring units of one tile.
struct Item {
  int tile, unit, units;
};

// Units of the next item of `left` units of a tile: as few items as there can be, of nearly equal sizes.
__device__ __forceinline__ int next_item_units(int left) {
  if (left <= kFc1ItemUnits) return left;
  return left <= 6 || left == 9 ? 3 : kFc1ItemUnits;  // 5 = 3 + 2, 6 = 3 + 3, 9 = 3 + 3 + 3
}
static_assert(kFc1ItemUnits == 4);

// Calls the body for every item of FC1: both groups have all of them.
template <typename Body>
__device__ __forceinline__ void for_each_fc1_item(const Share& share, const Body& body) {
  for (int at = share.begin; at < share.end;) {
    const int unit = at % kFc1Units, units = next_item_units(min(kFc1Units - unit, share.end - at));
    body(Item{at / kFc1Units, unit, units});
    at += units;
  }
}

// The same for a group's slots of FC2: the groups take them in turn.
template <typename Body>
__device__ __forceinline__ void for_each_fc2_slot(const Share& share, int group, const Body& body) {
  int turn = 0;
  for (int at = share.begin; at < share.end;) {
    const int unit = at % kFc2Units;
    const int units = min(kFc2SlotUnits - unit % kFc2SlotUnits, share.end - at);
    if (turn++ % kGroups == group) body(Item{at / kFc2Units, unit, units});
    at += units;
  }
}
static_assert(kFc2Units % kFc2SlotUnits == 0);

// Ring slot and barrier parity of a position in a group's sequence.
struct RingSlot {
  int slot;
  uint32_t phase;
  __device__ explicit RingSlot(uint32_t position) : slot(position % kGroupSlots), phase(position / kGroupSlots & 1) {}
};

}  // namespace cake_moe::sm90::experts

// Shared memory of the experts kernel, and which units a CTA computes: every role walks the same sequence of ring slots.
#pragma once

#include <cstdint>

#include "kernels/ptx/mbarrier.cuh"
#include "kernels/sm90/experts/config.h"

namespace cake_moe::sm90::experts {

struct Fc1Slot {
  uint8_t weights[kFc1ItemUnits * kFc1BoxBytes];  // [row][128 bytes], 128-byte swizzle
  uint8_t scales[2 * kFc1ScaleBytes];             // of the one or two 128-row blocks that the item lies in
  uint8_t tokens[kTokens * kFc1TokenPitch];       // [token][segment][lane % 4][32 bytes]
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
  uint32_t warp_sums[kGroupWarps];
};

// A token tile in one word.
struct Tile {
  uint32_t word;

  Tile() = default;
  __device__ explicit Tile(uint32_t packed) : word(packed) {}
  __device__ Tile(int expert, int first_row, int rows, int ordinal)
      : word(expert | first_row << 10 | (rows - 1) << 20 | ordinal << 23) {}
  __device__ int expert() const { return word & 1023; }
  __device__ int first_row() const { return word >> 10 & 1023; }
  __device__ int rows() const { return (word >> 20 & 7) + 1; }
  __device__ int ordinal() const { return word >> 23; }  // among the expert's tiles
};
static_assert(kExperts <= 1024 && kMaxRoutes <= 1024 && kTokens <= 8 && kMaxRoutes / kTokens <= 512);

struct Shared {
  Slot slots[kSlots];
  float exchange[2][kFc1ItemUnits][2][4 * 32];  // [parity][unit][half of its rows]: sums of the other half of K
  union {
    uint8_t hidden[kHiddenTiles][kTokens * kFc2TokenPitch];  // FC2's tokens, [token][segment][lane % 4][32 bytes]
    RouteScratch route;
  };
  uint32_t tiles[kMaxRoutes];
  int16_t ids[kMaxRoutes];  // -1 where a route has no expert
  int32_t tile_count;
  int32_t token_routes[kTokens];  // of the token warp
  uint64_t slot_arrived[kSlots];
  uint64_t slot_consumed[kSlots];
  uint64_t hidden_arrived[kHiddenTiles];
  uint64_t hidden_consumed[kHiddenTiles];
};
static_assert(sizeof(Shared) <= max_smem_bytes(kCtasPerSm));

// A CTA's share of `tiles * units_of_tile` units: contiguous, so that neighbouring units share scales. Equal shares that
// divide a tile are preferred to smaller ones that do not.
struct Share {
  int begin, end;

  __device__ Share(int tiles, int units_of_tile) {
    const int units = tiles * units_of_tile, ctas = gridDim.x, cta = blockIdx.x;
    const int most = (units + ctas - 1) / ctas;
    if (most > 0 && most <= units_of_tile && units_of_tile % most == 0) {
      begin = min(units, cta * most);
      end = min(units, begin + most);
    } else {
      begin = units * cta / ctas;
      end = units * (cta + 1) / ctas;
    }
  }
};
static_assert(int64_t{kMaxRoutes} * kFc2Units * 1024 <= INT32_MAX, "units times CTAs");

// Neighbouring units of one tile.
struct Item {
  int tile, unit, units;
};

template <typename Body>
__device__ __forceinline__ void for_each_fc1_item(const Share& share, const Body& body) {
  for (int at = share.begin; at < share.end;) {
    const int unit = at % kFc1Units, left = min(kFc1Units - unit, share.end - at);
    const int items = (left + kFc1ItemUnits - 1) / kFc1ItemUnits;
    const int units = (left + items - 1) / items;
    body(Item{at / kFc1Units, unit, units});
    at += units;
  }
}

template <typename Body>
__device__ __forceinline__ void for_each_fc2_slot(const Share& share, const Body& body) {
  for (int at = share.begin; at < share.end;) {
    const int unit = at % kFc2Units;
    const int units = min(kFc2SlotUnits - unit % kFc2SlotUnits, share.end - at);
    body(Item{at / kFc2Units, unit, units});
    at += units;
  }
}
static_assert(kFc2Units % kFc2SlotUnits == 0);

// Ring slot and barrier parity of a position in the sequence.
struct RingSlot {
  int slot;
  uint32_t phase;
  __device__ explicit RingSlot(uint32_t position) : slot(position % kSlots), phase(position / kSlots & 1) {}
};

}  // namespace cake_moe::sm90::experts

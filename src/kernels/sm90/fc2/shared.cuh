// Shared memory of FC2.
#pragma once

#include <cstdint>

#include "kernels/sm90/fc2/schedule.cuh"

namespace cake_moe::sm90::fc2 {

// A unit's weights and scales as they lie in global memory.
template <typename C>
struct UnitWeights {
  alignas(128) uint8_t weights[C::kWeightBytes];  // [row][192 bytes]
  uint8_t scales[C::kScaleBytes];                 // [6 atoms of 512 bytes]
};

template <typename C>
struct Shared {
  using Slot = UnitWeights<C>;  // of the experts kernel

  struct Ring {
    uint8_t weights[C::kSlots][C::kSubtileBytes];    // [row][192 bytes]
    uint8_t scales[C::kScaleSlots][C::kScaleBytes];  // [6 atoms of 512 bytes]
  };
  alignas(1024) uint8_t tokens[C::kTokenBytes];  // [segment][token][128 bytes], 128-byte swizzle
  Ring rings[C::kGroups];
  uint64_t arrived[C::kGroups][C::kSlots];
  TileWalk<C> walks[C::kGroups];  // of the threads that request weights: registers are short
};

// Where the `position`-th subtile of a warpgroup lies in its ring.
template <typename C>
struct RingPlace {
  int slot, scale_slot;
  uint32_t phase;
  __device__ __forceinline__ explicit RingPlace(int position)
      : slot(position % C::kSlots),
        scale_slot(position / kUnitSubtiles % C::kScaleSlots),
        phase(position / C::kSlots % 2) {}
};

}  // namespace cake_moe::sm90::fc2

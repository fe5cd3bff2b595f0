// Shared memory of the expert kernel, and what every role needs to walk it.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/ptx/mbarrier.cuh"
#include "kernels/sm100/experts/args.h"
#include "kernels/sm100/experts/config.h"

namespace cake_moe::sm100::experts {

// A unit: 128 stored weight rows of FC1 or FC2 by the rows of one token tile. kind kEnd: no work is left.
enum class Kind : int { kFc1, kFc2, kEnd };
struct Item {
  Kind kind;
  int tile, expert, first_row, rows, row_block;
};

// Of a kernel that routes for itself.
struct Routing {
  route::CtaTiles tiles;
  route::CtaScratch scratch;
  int32_t token_routes[4][route::kCtaTileRows];  // of a tile's rows, a copy for each token warp
};
struct NoRouting {};

template <typename C>
struct Shared {
  struct alignas(1024) Slot {
    uint8_t weights[C::kWeightBytes];             // [chunk][row][chunk bytes], swizzled
    uint8_t tokens[C::kTokenBytes];               // [chunk][token][chunk bytes], swizzled
    uint8_t weight_scales[C::kWeightScaleBytes];  // [step][atom]
    uint8_t token_scales[C::kTokenScaleBytes];    // [step][kScaleAtoms][atom]
  };
  Slot slots[C::kSlots];
  std::conditional_t<C::kQuantize, Routing, NoRouting> routing;
  Item items[C::kItems];
  uint64_t item_claimed[C::kItems];
  uint64_t item_done[C::kItems];
  uint64_t stage_arrived[C::kSlots];
  uint64_t stage_consumed[C::kSlots];
  uint64_t sums_ready[C::kAccumulators];
  uint64_t sums_stored[C::kAccumulators];
  uint32_t tmem;
};

// Slot and phase of a ring of barriers.
template <int kSlots>
struct RingPosition {
  int slot = 0;
  uint32_t phase = 0;
  __device__ __forceinline__ void advance() {
    if (++slot == kSlots) {
      slot = 0;
      phase ^= 1;
    }
  }
};

// Calls body(item) for every unit of this CTA, by one warp of a role; the item may not be read after body.
template <typename C, typename Body>
__device__ __forceinline__ void for_each_item(Shared<C>& shared, const Body& body) {
  RingPosition<C::kItems> at;
  while (true) {
    ptx::mbarrier_wait(&shared.item_claimed[at.slot], at.phase);
    const Item item = shared.items[at.slot];
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared.item_done[at.slot]);
    if (item.kind == Kind::kEnd) return;
    body(item);
    at.advance();
  }
}

}  // namespace cake_moe::sm100::experts

// Shared memory of FC1, and the units that its roles walk through.
#pragma once

#include <cstdint>

#include "kernels/ptx/sync.cuh"
#include "kernels/sm90/fc1/args.h"
#include "kernels/sm90/fc1/config.h"

namespace cake_moe::sm90::fc1 {

template <typename C>
struct Shared {
  struct Weights {
    alignas(1024) uint8_t codes[C::kWeightBytes];  // [row][128 bytes], 128-byte swizzle
    uint8_t scales[C::kScaleBytes];                // [128 rows][4 atoms of 512 bytes]
  };
  struct Exchange {
    float values[2][C::kPlaneFloats];  // activated, [token of a pass][32 features], of two passes
    float factors[256];                // hidden_block_factor of each scale
  };
  Weights weights[C::kWeightSlots];
  alignas(1024) uint8_t tokens[C::kTokenSlots][C::kTokenBytes];  // [segment][token][128 bytes], 128-byte swizzle
  Exchange exchange[C::kConsumers];
  uint64_t weights_arrived[C::kWeightSlots];
  uint64_t weights_consumed[C::kWeightSlots];
  uint64_t tokens_arrived[C::kTokenSlots];
  uint64_t tokens_consumed[C::kTokenSlots];
};

struct Unit {
  int expert, first_row, rows, row_block;
};

template <typename C>
__device__ __forceinline__ Unit load_unit(const Args& args, int unit) {
  const int4 tile = __ldcg(&args.tiles[unit / C::kRowBlocks]);
  return {tile.x, tile.y, tile.z, unit % C::kRowBlocks};
}

}  // namespace cake_moe::sm90::fc1

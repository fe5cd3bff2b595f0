// Shared memory of FC1, and the units that its roles walk through.
#pragma once

#include <cstdint>

#include "kernels/ptx/sync.cuh"
#include "kernels/sm90/fc1/args.h"
#include "kernels/sm90/fc1/config.h"

namespace cake_moe::sm90::fc1 {

// Segments of a pair's rows as operands, [row][128 bytes], 128-byte swizzle.
template <typename C, bool kRoles = C::kRoles>
struct Operands {
  alignas(1024) uint8_t operands[C::kPairs][C::kOperandSlots][C::kOperandBytes];
  uint64_t operands_arrived[C::kPairs][C::kOperandSlots];
  uint64_t operands_consumed[C::kPairs][C::kOperandSlots];
};
template <typename C>
struct Operands<C, false> {};

// hidden_block_factor of each scale.
template <int kFactors>
struct Factors {
  float factors[kFactors];
};
template <>
struct Factors<0> {};

template <typename C>
struct Shared : Operands<C> {
  struct Weights {
    alignas(1024) uint8_t codes[C::kWeightBytes];  // [row][128 bytes], 128-byte swizzle
    uint8_t scales[C::kScaleBytes];                // [128 rows][4 atoms of 512 bytes]
  };
  struct Exchange : Factors<C::kFactors> {
    float values[2][C::kPlaneFloats];  // activated, [token of a pass][32 features], of two passes
  };
  Weights weights[C::kWeightSlots];
  alignas(1024) uint8_t tokens[C::kTokenSlots][C::kTokenBytes];  // [segment][token][128 bytes], 128-byte swizzle
  Exchange exchange[C::kStoringGroups];
  uint64_t weights_arrived[C::kWeightSlots];
  uint64_t weights_consumed[C::kWeightSlots];
  uint64_t tokens_arrived[C::kTokenSlots];
  uint64_t tokens_consumed[C::kTokenSlots];
};

// Rows of a token tile by C::kTileRows weight rows.
struct Unit {
  int tile, expert, first_row, rows, row_block;
};

// The units of a CTA, round robin: every role walks the same sequence.
template <typename C, typename Body>
__device__ __forceinline__ void for_each_unit(const Args& args, int units, const Body& body) {
  const int ctas = gridDim.x;
  const auto tile_of = [&](int unit) {  // not its fourth word, to which other CTAs add
    const int4* tile = &args.tiles[unit / C::kRowBlocks];
    const int2 expert_and_row = __ldcg(reinterpret_cast<const int2*>(tile));
    return make_int3(expert_and_row.x, expert_and_row.y, __ldcg(&tile->z));
  };
  int unit = blockIdx.x;
  if (unit >= units) return;
  int3 next = tile_of(unit);
#pragma unroll 1
  for (; unit < units; unit += ctas) {
    const int3 tile = next;
    if (unit + ctas < units) next = tile_of(unit + ctas);  // a unit ahead: the whole CTA would wait for it
    body(Unit{.tile = unit / C::kRowBlocks,
              .expert = tile.x,
              .first_row = tile.y,
              .rows = tile.z,
              .row_block = unit % C::kRowBlocks});
  }
}

}  // namespace cake_moe::sm90::fc1

// Shared memory of FC1, and the units that its roles walk through.
#pragma once

#include <cstdint>

#include "kernels/ptx/sync.cuh"
#include "kernels/sm90/fc1/activation.cuh"
#include "kernels/sm90/fc1/args.h"
#include "kernels/sm90/fc1/config.h"

namespace cake_moe::sm90::fc1 {

// What the epilogue's passes over a unit need. block: of hs, the first of the unit's first token.
struct PassState {
  Activation act;
  int block, rows;
};

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
  struct Deferred {
    float4 sums[C::kDeferred > 0 ? C::kDeferred / 8 : 1]
               [C::kDeferred > 0 ? 128 : 1];  // of eight tokens, a thread's own
    PassState state;
  };
  Weights weights[C::kWeightSlots];
  alignas(1024) uint8_t tokens[C::kTokenSlots][C::kTokenBytes];  // [segment][token][128 bytes], 128-byte swizzle
  Exchange exchange[C::kConsumers];
  Deferred deferred[C::kDeferred > 0 ? C::kConsumers : 1];
  uint64_t weights_arrived[C::kWeightSlots];
  uint64_t weights_consumed[C::kWeightSlots];
  uint64_t tokens_arrived[C::kTokenSlots];
  uint64_t tokens_consumed[C::kTokenSlots];
};

// Rows of a token tile by C::kTileRows weight rows, of which the first `subtiles` warpgroups compute 64 rows each, from
// `first_subtile` on.
struct Unit {
  int expert, first_row, rows, row_block;
  int first_subtile, subtiles;
};

// Which units a CTA computes: every role walks the same sequence. Rounds of one unit a CTA; the units of a last round
// that is not full are split by weight rows over the CTAs that would idle.
template <typename C>
struct Schedule {
  int rounds, left, parts;  // full rounds; units of the last one, and CTAs for each of them

  __device__ explicit Schedule(int units) : rounds(units / gridDim.x), left(units % gridDim.x), parts(1) {
    while (2 * parts <= C::kConsumers && 2 * parts * left <= static_cast<int>(gridDim.x)) parts *= 2;
  }

  template <typename Body>
  __device__ __forceinline__ void for_each(const Args& args, const Body& body) const {
    const int cta = blockIdx.x, all = rounds + (cta < left * parts);
    const auto ctas_of = [this](int round) { return round < rounds ? 1 : parts; };
    const auto index_of = [&](int round) { return round * static_cast<int>(gridDim.x) + cta / ctas_of(round); };
    const auto tile_of = [&](int round) { return __ldcg(&args.tiles[index_of(round) / C::kRowBlocks]); };
    if (all == 0) return;
    int4 next = tile_of(0);
#pragma unroll 1
    for (int round = 0; round < all; ++round) {
      const int4 tile = next;
      if (round + 1 < all) next = tile_of(round + 1);  // a unit ahead: the whole CTA would wait for it
      const int ctas = ctas_of(round), subtiles = C::kConsumers / ctas;
      body(Unit{.expert = tile.x,
                .first_row = tile.y,
                .rows = tile.z,
                .row_block = index_of(round) % C::kRowBlocks,
                .first_subtile = cta % ctas * subtiles,
                .subtiles = subtiles});
    }
  }
};

}  // namespace cake_moe::sm90::fc1

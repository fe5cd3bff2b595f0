// The token warps: rows of the quantised input (FC1) or of the requantised hidden values (FC2), gathered into the ring.
#pragma once

#include <cstdint>

#include "kernels/ptx/copy.cuh"
#include "kernels/ptx/sync.cuh"
#include "kernels/quantize/block.cuh"
#include "kernels/sm100/experts/shared.cuh"

namespace cake_moe::sm100::experts {

// Columns of token tiles that no row fills are multiplied too, although never stored: they must hold something.
template <typename C>
__device__ __forceinline__ void clear_tokens(Shared<C>& shared, int thread) {
  constexpr int kPieces = C::kTokenBytes / 16, kScalePieces = C::kTokenScaleBytes / 16;
  for (int slot = 0; slot < C::kSlots; ++slot) {
    for (int i = thread; i < kPieces; i += C::kTokenThreads) {
      reinterpret_cast<uint4*>(shared.slots[slot].tokens)[i] = make_uint4(0, 0, 0, 0);
    }
    for (int i = thread; i < kScalePieces; i += C::kTokenThreads) {
      reinterpret_cast<uint4*>(shared.slots[slot].token_scales)[i] = make_uint4(0, 0, 0, 0);
    }
  }
}

// Source rows of the pieces that a thread copies: the same in every stage of a unit.
template <int kItemsOfRow, int kRows, int kThreads>
struct Sources {
  static constexpr int kCount = (kRows * kItemsOfRow + kThreads - 1) / kThreads;
  uint32_t row[kCount];

  template <typename RowOf>
  __device__ __forceinline__ Sources(int thread, int rows, const RowOf& row_of) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int token = (thread + i * kThreads) / kItemsOfRow;
      row[i] = token < rows ? row_of(token) : 0;
    }
  }

  // body(source row, token, item of the row)
  template <typename Body>
  __device__ __forceinline__ void for_each(int thread, int rows, const Body& body) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int item = thread + i * kThreads, token = item / kItemsOfRow;
      if (token < rows) body(row[i], token, item % kItemsOfRow);
    }
  }
};

// A unit's stages. row_of(token) is the row of `codes` and `scales` of a token of the tile.
template <typename C, typename G, typename RowOf>
__device__ __forceinline__ void gather_unit(Shared<C>& shared, RingPosition<C::kSlots>& at, const uint8_t* codes,
                                            const uint8_t* scales, int rows, int thread, const RowOf& row_of) {
  constexpr int kChunkPieces = G::kChunkBytes / 16, kPieces = G::kChunks * kChunkPieces;
  constexpr uint32_t kRowBytes = G::kStages * kPieces * 16;
  const Sources<kPieces, C::kTokens, C::kTokenThreads> pieces(thread, rows, row_of);
  const Sources<G::kSteps, C::kTokens, C::kTokenThreads> steps(thread, rows, row_of);
  for (int stage = 0; stage < G::kStages; ++stage) {
    auto& slot = shared.slots[at.slot];
    ptx::mbarrier_wait(&shared.stage_consumed[at.slot], at.phase ^ 1);
    const uint32_t tokens = ptx::shared_address(slot.tokens), token_scales = ptx::shared_address(slot.token_scales);
    pieces.for_each(thread, rows, [&](uint32_t row, int token, int piece) {
      const int chunk = piece / kChunkPieces, byte = swizzled_byte<G::kChunkBytes>(token, piece % kChunkPieces);
      ptx::cp_async_16(tokens + chunk * C::kTokens * G::kChunkBytes + byte,
                       codes + int64_t{row} * kRowBytes + (stage * kPieces + piece) * 16);
    });
    steps.for_each(thread, rows, [&](uint32_t row, int token, int step) {
      ptx::cp_async_4(token_scales + step * C::kScaleAtoms * kScaleAtomBytes + scale_byte(token),
                      scales + int64_t{row} * G::kGroups + (stage * G::kSteps + step) * 4);
    });
    ptx::cp_async_arrive(&shared.stage_arrived[at.slot]);
    at.advance();
  }
}

// Every warp of FC1's epilogue adds one when its part of a tile is visible.
template <typename C>
__device__ __forceinline__ void wait_for_tile(const Args& args, int tile) {
  if (threadIdx.x % 32 == 0) {
    while (ptx::load_acquire(&args.tiles[tile].w) < Fc1::kRowBlocks * C::kEpilogueWarps) {
    }
  }
  __syncwarp();
}

// FC1's tokens where nobody has quantised them yet: a thread quantises one block of one row in every stage. The routes
// of the tile's rows are found on the way and stored by the tile's first unit.
template <typename C>
__device__ __forceinline__ void quantize_unit(const Args& args, Shared<C>& shared, RingPosition<C::kSlots>& at,
                                              const Item& item, int thread) {
  constexpr int kBlocks = Fc1::kSteps * 4;  // of a stage
  constexpr int kAhead = Fc1::kStages / 2;  // stages whose input is loaded together
  static_assert(kBlocks * C::kTokens == C::kTokenThreads);
  auto& routes = shared.routing.token_routes[thread / 32];
  const route::CtaTile tile(shared.routing.tiles.tiles[item.tile]);
  route::find_routes(shared.routing.tiles.ids, tile, args.input.route.num_tokens * kTopK, routes);
  const int token = thread / kBlocks, block = thread % kBlocks;
  const int route = token < item.rows ? routes[token] : 0;
  if (item.row_block == 0 && block == 0 && token < item.rows) {
    args.input.route.row_route[item.first_row + token] = route;
    args.input.route.route_row[route] = item.first_row + token;
  }
  const uint4* source = args.input.x + route / kTopK * (kHidden / 8) + 2 * block;
  const float encode = __ldg(args.input.encode);
  for (int first = 0; first < Fc1::kStages; first += kAhead) {
    uint4 input[kAhead][2];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      input[i][0] = __ldg(source + (first + i) * (2 * kBlocks));
      input[i][1] = __ldg(source + (first + i) * (2 * kBlocks) + 1);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      auto& slot = shared.slots[at.slot];
      ptx::mbarrier_wait(&shared.stage_consumed[at.slot], at.phase ^ 1);
      if (token < item.rows) {
        const quantize::Block result = quantize::quantize_block(input[i][0], input[i][1], encode);
        *reinterpret_cast<uint2*>(slot.tokens + swizzled_byte<Fc1::kChunkBytes>(token, block / 2) + block % 2 * 8) =
            result.codes;
        slot.token_scales[block / 4 * kScaleAtomBytes + scale_byte(token) + block % 4] = result.scale;
      }
      ptx::fence_async_shared();
      ptx::mbarrier_arrive(&shared.stage_arrived[at.slot]);
      at.advance();
    }
  }
}

template <typename C>
__device__ __forceinline__ void gather_tokens(const Args& args, Shared<C>& shared, int thread) {
  RingPosition<C::kSlots> at;
  for_each_item<C>(shared, [&](const Item& item) {
    if (C::kQuantize && item.kind == Kind::kFc1) {
      if constexpr (C::kQuantize) quantize_unit<C>(args, shared, at, item, thread);
    } else if (item.kind == Kind::kFc1) {
      gather_unit<C, Fc1>(shared, at, args.fc1.xq, args.fc1.xs, item.rows, thread,
                          [&](int token) { return __ldcg(&args.row_route[item.first_row + token]) / kTopK; });
    } else {
      wait_for_tile<C>(args, item.tile);
      gather_unit<C, Fc2>(shared, at, args.hq, args.hs, item.rows, thread,
                          [&](int token) { return item.first_row + token; });
    }
  });
}

}  // namespace cake_moe::sm100::experts

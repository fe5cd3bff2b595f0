// Tokens as fp16 operands in the K order of dequant.cuh: FC1's are quantised once and gathered into the rings, or,
// where they are few, quantised by every CTA for itself; FC2's come from the hidden values by tile.
#pragma once

#include <cstdint>

#include "kernels/ptx/copy.cuh"
#include "kernels/ptx/sync.cuh"
#include "kernels/quantize/block.cuh"
#include "kernels/sm90/experts/args.h"
#include "kernels/sm90/experts/packets.cuh"
#include "kernels/sm90/experts/shared.cuh"
#include "kernels/sm90/mma.cuh"

namespace cake_moe::sm90::experts {

// One block of sixteen codes as the fp16 of lane t of an MMA fragment; `at` gives the place of a byte of the segment.
template <typename At>
__device__ __forceinline__ void store_operand(const At& at, int t, uint2 codes, __half2 scale) {
  const uint32_t words[] = {codes.x, codes.y};
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    uint32_t pairs[4];
    dequantize_word(words[j], scale, pairs);
#pragma unroll
    for (int k = 0; k < 4; ++k) *reinterpret_cast<uint32_t*>(at(segment_byte(j, k / 2, k % 2, t))) = pairs[k];
  }
}

// A warp quantises 32 blocks of a token at a time, two stages of FC1. Lane t of a fragment has four blocks of a stage,
// one a segment.
struct QuantizingLane {
  int stage, segment, t;

  __device__ QuantizingLane() : stage(threadIdx.x / 16 % 2), segment(threadIdx.x / 4 % 4), t(threadIdx.x % 4) {}
  __device__ int block() const { return kStageBlocks * stage + 4 * t + segment; }
};

__device__ __forceinline__ quantize::Block quantize_input(const InputArgs& args, int block) {
  return quantize::quantize_block(__ldg(&args.x[2 * block]), __ldg(&args.x[2 * block + 1]), __ldg(args.encode));
}

__device__ __forceinline__ void store_input(const InputArgs& args, int block, const quantize::Block& result) {
  args.xq[block] = result.codes;
  args.xs[block] = result.scale;
}

// All blocks, dealt over the grid. Neighbouring lanes write neighbouring bytes of x_half.
__device__ __forceinline__ void quantize_tokens(const InputArgs& args, int num_tokens, int warp, int warps) {
  const QuantizingLane lane;
  const int blocks = num_tokens * kFc1Groups, stride = 32 * gridDim.x * warps;
  for (int base = 32 * static_cast<int>(blockIdx.x + gridDim.x * warp); base < blocks; base += stride) {
    const int block = base + lane.block();
    const quantize::Block result = quantize_input(args, block);
    store_input(args, block, result);
    uint8_t* to = args.x_half + (base + kStageBlocks * lane.stage) * (2 * kGroup) + lane.segment * (2 * kSegment);
    store_operand([&](int byte) { return to + byte; }, lane.t, result.codes, __low2half2(shifted_scales(result.scale)));
  }
}

// All blocks of few tokens for the CTA's own FC1; the workspace's copy is dealt over the grid.
__device__ __forceinline__ void quantize_few(const InputArgs& args, Shared& shared, int num_tokens, int warp) {
  const QuantizingLane lane;
  const int turns = num_tokens * (kFc1Groups / 32);
  for (int turn = warp; turn < turns; turn += kConsumerWarps) {
    const int block = 32 * turn + lane.block(), token = turn / (kFc1Groups / 32), first = turn % (kFc1Groups / 32);
    const quantize::Block result = quantize_input(args, block);
    if (turn % gridDim.x == blockIdx.x) store_input(args, block, result);
    uint8_t* to = shared.input[token] + (2 * first + lane.stage) * kStagePitch + lane.segment * kSegmentPitch;
    store_operand([&](int byte) { return to + byte; }, lane.t, result.codes, __low2half2(shifted_scales(result.scale)));
  }
}
static_assert(kFc1Groups % 32 == 0 && 2 * kStageBlocks == 32);

// Routes of a tile's rows; where the CTA has the tile's first unit, they are also recorded.
__device__ __forceinline__ void find_routes(const RouteArgs& args, Shared& shared, const Item& item, const Tile& tile,
                                            int group) {
  int32_t (&routes)[kTokens] = shared.token_routes[group];
  route::find_routes(shared.ids, tile, args.num_tokens * kTopK, routes);
  const int lane = threadIdx.x % 32;
  if (group != 0 || item.unit != 0 || lane >= tile.rows()) return;
  args.row_route[tile.first_row() + lane] = routes[lane];
  args.route_row[routes[lane]] = tile.first_row() + lane;
}

// A stage of a tile's rows into a ring slot, 512 bytes of a row an instruction. `offset` holds the bytes of row `lane`
// in x_half; `target` is the shared address of the lane's piece of the first row.
__device__ __forceinline__ void gather_tokens(const uint8_t* source, uint32_t offset, uint32_t target, int rows) {
  constexpr int kTogether = 4;
#pragma unroll
  for (int first = 0; first < kTokens; first += kTogether) {
    uint32_t from[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) from[i] = __shfl_sync(~0u, offset, first + i);
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (first + i < rows) ptx::cp_async_16(target + (first + i) * kTokenPitch, source + from[i]);
    }
  }
}

// FC1's tokens of a group's half of K, gathered. By one warp.
__device__ __forceinline__ void bring_tokens(const Args& args, Shared& shared, int group) {
  const int lane = threadIdx.x % 32;
  const uint8_t* source = args.fc1.x_half + group * (kSliceK * 2) + lane * 16;
  const int target = lane / 8 * kSegmentPitch + lane % 8 * 16;
  uint32_t position = 0, offset = 0;
  int current = -1;
  for_each_fc1_item(shared.fc1, [&](const Item& item) {
    const Tile tile(shared.tiles[item.tile]);
    if (item.tile != current) {
      find_routes(args.route, shared, item, tile, group);
      offset = lane < tile.rows() ? shared.token_routes[group][lane] / kTopK * (kHidden * 2) : 0;
    }
    current = item.tile;
#pragma unroll 1
    for (int stage = 0; stage < kStages; ++stage) {
      const RingSlot ring(position++);
      ptx::mbarrier_wait(&shared.slot_consumed[group][ring.slot], ring.phase ^ 1);
      gather_tokens(source + stage * (kStageK * 2), offset,
                    ptx::shared_address(shared.tokens[group][ring.slot]) + target, tile.rows());
      ptx::cp_async_arrive(&shared.slot_arrived[group][ring.slot]);
    }
  });
}

// hq, hs of a tile's rows -> fp16. Lane t of a fragment has pieces t, t + 4 and t + 8 of a row, two blocks each.
__device__ __forceinline__ void load_hidden(const fc2::Args& args, uint8_t* tokens, const Tile& tile) {
  for (int i = threadIdx.x % 32; i < tile.rows() * Fc2::kPieces; i += 32) {
    const int token = i / Fc2::kPieces, piece = i % Fc2::kPieces;
    const int row = tile.first_row() + token;
    const uint4 codes = __ldcg(reinterpret_cast<const uint4*>(args.hq + row * kFc2RowBytes) + piece);
    const __half2 scales =
        shifted_scales(__ldcg(reinterpret_cast<const uint16_t*>(args.hs + row * kFc2Groups) + piece));
    uint8_t* segment = tokens + piece / 4 * (2 * Fc2::kSegmentBytes);
    const auto first = [&](int byte) { return segment + swizzled_byte(token, byte / 16) + byte % 16; };
    const auto second = [&](int byte) { return first(byte) + Fc2::kSegmentBytes; };
    store_operand(first, piece % 4, make_uint2(codes.x, codes.y), __low2half2(scales));
    store_operand(second, piece % 4, make_uint2(codes.z, codes.w), __high2half2(scales));
  }
}

// The same of few tokens, a block a lane as soon as it is there.
__device__ __forceinline__ void receive_hidden(const Args& args, uint8_t* tokens, const Tile& tile) {
  for (int i = threadIdx.x % 32; i < tile.rows() * kFc2Groups; i += 32) {
    const int token = i / kFc2Groups, block = i % kFc2Groups, piece = block / 2;
    uint2 codes;
    const uint8_t scale = receive(packet_of(args, tile.first_row() + token, block), codes);
    uint8_t* segment = tokens + (piece / 4 * 2 + block % 2) * Fc2::kSegmentBytes;
    const auto at = [&](int byte) { return segment + swizzled_byte(token, byte / 16) + byte % 16; };
    store_operand(at, piece % 4, codes, __low2half2(shifted_scales(scale)));
  }
}

// The tiles of FC2, each once all of its FC1 units are finished, wherever they were computed. By one warp.
template <bool kFew>
__device__ __forceinline__ void bring_hidden(const Args& args, Shared& shared) {
  const Share share = shared.fc2;
  if (share.begin == share.end) return;
  const int first = share.begin / kFc2Units, last = (share.end - 1) / kFc2Units;
  for (int index = first; index <= last; ++index) {
    const int buffer = (index - first) % kHiddenTiles, round = (index - first) / kHiddenTiles;
    ptx::mbarrier_wait(&shared.hidden_consumed[buffer], round % 2 ^ 1);
    const Tile tile(shared.tiles[index]);
    if constexpr (kFew) {
      receive_hidden(args, shared.hidden[buffer], tile);
    } else {
      while (ptx::load_acquire(&args.route.tiles[index].w) != kFc1Units) {
      }
      load_hidden(args.fc2, shared.hidden[buffer], tile);
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared.hidden_arrived[buffer]);
  }
}

}  // namespace cake_moe::sm90::experts

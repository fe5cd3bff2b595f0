// Tokens as fp16 operands in the K order of dequant.cuh: FC1's are quantised by every CTA for itself, FC2's come from
// the hidden values by tile.
#pragma once

#include <cstdint>

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

// All blocks for the CTA's own FC1; the workspace's copy is dealt over the grid.
__device__ __forceinline__ void quantize_tokens(const InputArgs& args, Shared& shared, int num_tokens, int warp) {
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

// The hidden values of a tile's rows, a block a lane as soon as it is there. Lane t of a fragment has pieces t, t + 4
// and t + 8 of a row, two blocks each.
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

// The tiles of FC2, wherever their hidden values were computed. By one warp.
__device__ __forceinline__ void bring_hidden(const Args& args, Shared& shared) {
  const Share share = shared.fc2;
  if (share.begin == share.end) return;
  const int first = share.begin / kFc2Units, last = (share.end - 1) / kFc2Units;
  for (int index = first; index <= last; ++index) {
    const int buffer = (index - first) % kHiddenTiles, round = (index - first) / kHiddenTiles;
    ptx::mbarrier_wait(&shared.hidden_consumed[buffer], round % 2 ^ 1);
    const Tile tile(shared.tiles[index]);
    receive_hidden(args, shared.hidden[buffer], tile);
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared.hidden_arrived[buffer]);
  }
}

}  // namespace cake_moe::sm90::experts

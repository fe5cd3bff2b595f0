// Tokens as the MMA's other operand. In "lane order" the 32 bytes that a lane needs for the four MMA steps of a segment
// are contiguous: they are the lane's own quantisation block, two words of four pairs each (dequant.cuh), so that a lane
// reads two 16-byte pieces and needs no ldmatrix. Segment s of a stage holds the blocks that lanes t = 0..3 of a
// fragment row meet there, 32 * t bytes apart.
#pragma once

#include <cstdint>

#include "kernels/ptx/mma.cuh"
#include "kernels/quantize/block.cuh"
#include "kernels/sm90/dequant.cuh"
#include "kernels/sm90/experts/args.h"
#include "kernels/sm90/experts/config.h"
#include "kernels/sm90/mma.cuh"

namespace cake_moe::sm90::experts {

inline constexpr int kChunkBytes = kGroup * 2;              // a block in fp16
inline constexpr int kSegmentBytes = 4 * kChunkBytes;       // of one token
inline constexpr int kStageBlocks = kStageK / kGroup;

// 32-byte chunk of a block inside its stage of FC1: a lane's weight row has pieces 2t and 2t + 1, two blocks each.
__device__ __forceinline__ int fc1_chunk(int block) { return block % 4 * 4 + block / 4; }
// The same for FC2, whose lanes have pieces t, t + 4 and t + 8.
__device__ __forceinline__ int fc2_chunk(int block) { return (block / 8 * 2 + block % 2) * 4 + block % 8 / 2; }

__device__ __forceinline__ void store_chunk(uint4* chunk, uint2 codes, __half2 scale) {
  const uint32_t words[] = {codes.x, codes.y};
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    uint32_t pairs[4];
    dequantize_word(words[j], scale, pairs);
    chunk[j] = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
  }
}

// d += a * tokens over one segment; `lane_tokens` is the lane's chunk of its token.
__device__ __forceinline__ void multiply_lane_order(float (&d)[4], const uint32_t (&a)[kSteps][4],
                                                    const uint8_t* lane_tokens) {
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const uint4 b = *reinterpret_cast<const uint4*>(lane_tokens + 16 * j);
    ptx::mma_m16n8k16(d, a[2 * j], b.x, b.y);
    ptx::mma_m16n8k16(d, a[2 * j + 1], b.z, b.w);
  }
}

// A lane's token of a tile. Columns beyond the tile's rows repeat its last one and are never stored.
__device__ __forceinline__ int lane_token(int rows) { return min(static_cast<int>(threadIdx.x % 32 / 4), rows - 1); }

// The input's blocks, 32 a warp at a time, dealt over the grid; by the warps of the second group.
__device__ __forceinline__ void quantize_tokens(const QuantizeArgs& args, int num_tokens) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 - kGroupWarps;
  const int blocks = num_tokens * kBlocksOfToken;
  const int first = 32 * static_cast<int>(blockIdx.x + gridDim.x * warp), stride = 32 * gridDim.x * kGroupWarps;
  if (first >= blocks) return;
  const float encode = __ldg(args.encode);
  for (int block = first + lane; block < blocks; block += stride) {
    const uint4 low = __ldg(&args.x[2 * block]), high = __ldg(&args.x[2 * block + 1]);
    const uint32_t pairs[] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    const quantize::Block result = quantize::quantize_block(pairs, encode);
    args.xq[block] = result.codes;
    args.xs[block] = result.scale;
    const int chunk = block / kStageBlocks * kStageBlocks + fc1_chunk(block % kStageBlocks);
    store_chunk(args.x_half + 2 * chunk, result.codes, __low2half2(shifted_scales(result.scale)));
  }
}
static_assert(kBlocksOfToken % kStageBlocks == 0);

}  // namespace cake_moe::sm90::experts

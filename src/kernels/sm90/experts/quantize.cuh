// The input's blocks as the stage seam wants them (xq, xs) and as the MMAs do: FC1's chunks.
#pragma once

#include <cstdint>

#include "kernels/ptx/sync.cuh"
#include "kernels/quantize/block.cuh"
#include "kernels/sm90/experts/args.h"
#include "kernels/sm90/experts/blocks.cuh"

namespace cake_moe::sm90::experts {

// A lane's row of a stage of FC1 has pieces 2t and 2t + 1, one a chunk, two blocks each.
__device__ __forceinline__ void store_fc1_block(Chunk* token, int block, uint2 codes, uint8_t scale) {
  const int in_stage = block % kStageBlocks;
  store_block_of_token(token[block / kStageBlocks * kStageChunks + in_stage / 2 % 2], in_stage / 4, in_stage % 2, codes,
                       scale);
}

// 32 blocks of a token a warp at a time, dealt over the grid; by the warps of the second group.
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
    const int token = block / kBlocksOfToken;
    store_fc1_block(args.chunks + token * kFc1Chunks, block % kBlocksOfToken, result.codes, result.scale);
  }
  ptx::fence_async();  // bulk copies of all CTAs read the chunks
}

}  // namespace cake_moe::sm90::experts

// bf16 -> NVFP4, 32 blocks a warp at a time. For sm_90a the result is also stored dequantised to fp16 in the K order of
// its expert GEMM.
#pragma once

#include <cstdint>

#include "kernels/prologue/args.h"
#include "kernels/prologue/config.h"
#include "kernels/quantize/block.cuh"
#include "kernels/sm90/dequant.cuh"

namespace cake_moe::prologue {

// Block of the item's 32 that a lane takes: lanes t = 0..3 of an MMA fragment own four consecutive blocks each.
__device__ __forceinline__ int lane_block(int lane) { return 16 * (lane / 16) + 4 * (lane % 4) + lane / 4 % 4; }

__device__ __forceinline__ void store_image(uint8_t* image, const quantize::Block& block, int lane) {
  const __half2 scale = __low2half2(sm90::shifted_scales(block.scale));
  uint8_t* segment = image + lane / 4 * kSegmentPitch;
  const uint32_t words[] = {block.codes.x, block.codes.y};
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    uint32_t pairs[4];
    sm90::dequantize_word(words[j], scale, pairs);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      *reinterpret_cast<uint32_t*>(segment + sm90::segment_byte(j, k / 2, k % 2, lane % 4)) = pairs[k];
    }
  }
}

__device__ __forceinline__ void quantize_item(const QuantizeArgs& args, int64_t item, float encode, uint8_t* image,
                                              int lane) {
  const int64_t block = item * 32 + lane_block(lane);
  const uint4 first = args.x[2 * block], second = args.x[2 * block + 1];
  const uint32_t pairs[] = {first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w};
  const quantize::Block result = quantize::quantize_block(pairs, encode);
  args.xq[block] = result.codes;
  args.xs[block] = result.scale;
  if (args.x_half == nullptr) return;
  __syncwarp();  // the image of the previous item has been read
  store_image(image, result, lane);
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int byte = 512 * i + 16 * lane;
    const uint4 values = *reinterpret_cast<const uint4*>(image + byte / 128 * kSegmentPitch + byte % 128);
    *reinterpret_cast<uint4*>(args.x_half + item * (2 * kItemElements) + byte) = values;
  }
}

// By whole warps, items dealt in the order of `warp` among `warps`; `image` is the warp's.
__device__ __forceinline__ void quantize_items(const QuantizeArgs& args, int64_t items, int64_t warp, int64_t warps,
                                               uint8_t* image) {
  const float encode = *args.encode;
  for (int64_t item = warp; item < items; item += warps) {
    quantize_item(args, item, encode, image, threadIdx.x % 32);
  }
}

}  // namespace cake_moe::prologue

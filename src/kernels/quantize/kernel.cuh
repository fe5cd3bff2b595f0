// bf16 -> NVFP4, one thread a block of kGroup values. Architecture-neutral.
#pragma once

#include <cstdint>

#include "kernels/quantize/block.cuh"
#include "kernels/quantize/config.h"

namespace cake_moe::quantize {

// x bf16 [blocks, 16], encode 1 element -> packed e2m1 [blocks, 8 bytes], scales e4m3 [blocks].
__global__ void __launch_bounds__(kThreads)
    cake_moe_quantize(const uint4* __restrict__ x, int64_t blocks, const float* __restrict__ encode,
                      uint2* __restrict__ packed, uint8_t* __restrict__ scales) {
  const float scale = *encode;
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < blocks; i += stride) {
    const uint4 first = x[2 * i], second = x[2 * i + 1];
    const uint32_t pairs[] = {first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w};
    const Block block = quantize_block(pairs, scale);
    packed[i] = block.codes;
    scales[i] = block.scale;
  }
}

}  // namespace cake_moe::quantize

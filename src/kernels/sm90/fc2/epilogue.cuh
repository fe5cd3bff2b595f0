// FC2's epilogue: two neighbouring output columns a thread, straight to y. `factor` is the expert's alpha times
// kUnshift, an exact power of two; store(word of y, pair) writes them.
#pragma once

#include <cstdint>

#include "kernels/sm90/fc2/mainloop.cuh"
#include "numerics/fp32.h"

namespace cake_moe::sm90::fc2 {

template <typename C, int kN, typename Store>
__device__ __forceinline__ void store_subtile(const Args& args, const int4& tile, float factor, int first_column,
                                              const float (&acc)[kN / 2], const Store& store) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const int column = first_column + 32 * (warp / 2) + 16 * (warp % 2) + 2 * lane_column(lane / 4);
  const int first_token = 2 * (lane % 4);
  uint16_t* y = args.y + int64_t{tile.y + first_token} * kHidden + column;
#pragma unroll
  for (int n = 0; n < kN / 8; ++n) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const uint32_t pair = ptx::cvt_bf16x2(mul_rn(acc[4 * n + 2 + c], factor), mul_rn(acc[4 * n + c], factor));
      if (8 * n + c + first_token < tile.z) {
        store(reinterpret_cast<uint32_t*>(y + int64_t{8 * n + c} * kHidden), pair);
      }
    }
  }
}

}  // namespace cake_moe::sm90::fc2

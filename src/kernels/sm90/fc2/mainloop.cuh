// The product of one subtile of FC2: 64 stored weight rows by a warpgroup, over all of K.
#pragma once

#include <cstdint>

#include "kernels/sm90/fc2/args.h"
#include "kernels/sm90/fc2/shared.cuh"
#include "kernels/sm90/mma.cuh"

namespace cake_moe::sm90::fc2 {

// Stored row (of a subtile of 64) that lane row r of a warp's fragment holds; its second row is 8 further. Chosen so
// that the two rows are neighbouring output columns and a warp's eight lane rows make 32 contiguous bytes of output.
__device__ __forceinline__ int lane_column(int r) { return (r & 4) | (r & 1) << 1 | (r & 2) >> 1; }
__device__ __forceinline__ int stored_row(int warp, int r) {
  const int column = lane_column(r);
  return 32 * (warp / 2) + 16 * (column % 2) + 4 * (warp % 2) + column / 2;
}

// By kN of the tile's columns. `weights` are the subtile's, `scales` the unit's. Calls `read` once the thread has its
// last weights in registers; the products may still be running then.
template <typename C, int kN, typename Read>
__device__ __forceinline__ void accumulate(const uint8_t* weights, const uint8_t* scales, const uint8_t* tokens,
                                           int subtile, float (&acc)[kN / 2], const Read& read) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const int t = lane % 4, row = stored_row(warp, lane / 4), unit_row = kSubtileRows * subtile + row;
  weights += row * kFc2RowBytes + t * 16;
  scales += t / 2 * 512 + unit_row % 32 * 16 + unit_row / 32 * 4 + t % 2 * 2;
  const uint32_t address = ptx::shared_address(tokens);
  const uint64_t descriptor = ptx::swizzle128_descriptor(address);
  clear(acc);
  constexpr int kLast = C::kBuffers - 1;
  uint32_t a[C::kBuffers][kSteps][4];
#pragma unroll
  for (int i = 0; i < C::kSegments / 2; ++i) {
    const uint4 low = *reinterpret_cast<const uint4*>(weights + 64 * i);
    const uint4 high = *reinterpret_cast<const uint4*>(weights + 8 * kFc2RowBytes + 64 * i);
    const __half2 low_scales = shifted_scales(*reinterpret_cast<const uint16_t*>(scales + 1024 * i));
    const __half2 high_scales = shifted_scales(*reinterpret_cast<const uint16_t*>(scales + 8 * 16 + 1024 * i));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int segment = 2 * i + half;
      const __half2 low_scale = half == 0 ? __low2half2(low_scales) : __high2half2(low_scales);
      const __half2 high_scale = half == 0 ? __low2half2(high_scales) : __high2half2(high_scales);
      dequantize_segment(half == 0 ? low.x : low.z, half == 0 ? low.y : low.w, low_scale, half == 0 ? high.x : high.z,
                         half == 0 ? high.y : high.w, high_scale, a[half & kLast]);
      if constexpr (C::kWarpMma) {
        multiply_segment<kN>(acc, a[half & kLast], address + segment * C::kSegmentBytes);
      } else {
        start_segment<kN>(acc, a[half & kLast], descriptor + segment * (C::kSegmentBytes >> 4));
      }
      if (segment + 1 == C::kSegments) read();
      if constexpr (!C::kWarpMma) ptx::wgmma_wait<kLast>();
    }
  }
  if constexpr (C::kWarpMma) {
    __syncwarp();
  } else {
    ptx::wgmma_wait<0>();
#pragma unroll
    for (int j = 0; j < kN / 2; ++j) ptx::pin(acc[j]);
  }
}

// The same for a slot of the experts kernel, whose readers tell of themselves.
template <typename C, int kN>
__device__ __forceinline__ void accumulate(const UnitWeights<C>& slot, const uint8_t* tokens, int subtile,
                                           float (&acc)[kN / 2]) {
  accumulate<C, kN>(slot.weights + subtile * C::kSubtileBytes, slot.scales, tokens, subtile, acc, [] {});
}

}  // namespace cake_moe::sm90::fc2

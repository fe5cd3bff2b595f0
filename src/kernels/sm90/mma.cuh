// One K segment of the expert GEMM: weights in registers, activations in shared memory.
#pragma once

#include <cstdint>

#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/pin.cuh"
#include "kernels/ptx/wgmma.cuh"
#include "kernels/sm90/dequant.cuh"

namespace cake_moe::sm90 {

inline constexpr int kSteps = kSegment / 16;    // MMA steps of a segment
inline constexpr int kSwizzleRowBytes = 128;    // a token's segment in shared memory
inline constexpr int kSwizzleAtomBytes = 1024;  // eight of them
static_assert(kSegment * sizeof(uint16_t) == kSwizzleRowBytes);

// Byte of a 16-byte piece of a token's segment under the 128-byte swizzle.
__host__ __device__ constexpr int swizzled_byte(int row, int piece) {
  return row * kSwizzleRowBytes + (piece ^ row % 8) * 16;
}

// Starts the segment's steps as one group, on the first kN columns. `a` must not be written before the group has ended.
template <int kN, int kCount>
__device__ __forceinline__ void start_segment(float (&d)[kCount], uint32_t (&a)[kSteps][4], uint64_t tokens) {
  static_assert(kN / 2 <= kCount);
  auto& columns = reinterpret_cast<float (&)[kN / 2]>(d);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) ptx::pin(a[step][i]);
  }
  ptx::wgmma_fence();
#pragma unroll
  for (int step = 0; step < kSteps; ++step) ptx::wgmma_m64k16<kN>(columns, a[step], tokens + step * (32 >> 4));
  ptx::wgmma_commit();
}

// The same by one warp for its sixteen rows, without a group: for few tokens, where the warps of a warpgroup would only
// wait for each other. `tokens` is the shared address of the segment.
template <int kN>
__device__ __forceinline__ void multiply_segment(float (&d)[kN / 2], const uint32_t (&a)[kSteps][4], uint32_t tokens) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int n = 0; n < kN / 8; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t b[4];
      ptx::ldmatrix_x4(b, tokens + n * kSwizzleAtomBytes + swizzled_byte(lane % 8, 4 * half + lane / 8));
      ptx::mma_m16n8k16(d + 4 * n, a[2 * half], b[0], b[1]);
      ptx::mma_m16n8k16(d + 4 * n, a[2 * half + 1], b[2], b[3]);
    }
  }
}

// Pinned: the zeros must be in the registers before the fence that precedes the first wgmma.
template <int kCount>
__device__ __forceinline__ void clear(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    d[i] = 0.0f;
    ptx::pin(d[i]);
  }
}

// Slot and phase of a ring of barriers.
template <int kSlots>
struct RingPosition {
  int slot = 0;
  uint32_t phase = 0;
  __device__ __forceinline__ void advance() {
    if (++slot == kSlots) {
      slot = 0;
      phase ^= 1;
    }
  }
};

}  // namespace cake_moe::sm90

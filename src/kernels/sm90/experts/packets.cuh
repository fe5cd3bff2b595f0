// What CTAs hand to each other in words that say by themselves that they have been written: no count, fence or second
// read lies between. FC1's hidden values to FC2: a block's codes and scale in two words, a bit of each is set. FC2's y
// to the finalise: pairs of bf16.
#pragma once

#include <cstdint>

#include "kernels/ptx/relaxed.cuh"
#include "kernels/sm90/experts/args.h"
#include "kernels/sm90/experts/config.h"

namespace cake_moe::sm90::experts {

// Codes 0..7 and the scale, codes 8..15.
struct Packet {
  uint64_t words[2];
};
static_assert(sizeof(Packet) * kTopK * kFc2Groups <= kHidden * sizeof(uint16_t),
              "the packets of a token fit its x_half");

inline constexpr uint64_t kWritten = uint64_t{1} << 63;

__device__ __forceinline__ Packet* packet_of(const Args& args, int row, int block) {
  return args.packets + row * kFc2Groups + block;
}

// No pair of y: a conversion to bf16 gives 0x7FFF for NaN.
inline constexpr uint32_t kUnwrittenPair = UINT32_MAX;

// By whole CTAs: the last ones, which have the least to do.
__device__ __forceinline__ void fill(void* memory, int bytes, uint32_t word) {
  for (int i = (gridDim.x - 1 - blockIdx.x) * kThreads + threadIdx.x; i < bytes / 16; i += gridDim.x * kThreads) {
    static_cast<uint4*>(memory)[i] = make_uint4(word, word, word, word);
  }
}

// Before the grid barrier.
__device__ __forceinline__ void mark_unwritten(const Args& args) {
  const int routes = args.route.num_tokens * kTopK;
  fill(args.packets, routes * kFc2Groups * sizeof(Packet), 0);
  fill(args.fc2.y, routes * kHidden * sizeof(uint16_t), kUnwrittenPair);
}

// Behind it.
__device__ __forceinline__ void send(Packet* packet, uint2 codes, uint8_t scale) {
  ptx::store_relaxed(&packet->words[0], kWritten | uint64_t{scale} << 32 | codes.x);
  ptx::store_relaxed(&packet->words[1], kWritten | codes.y);
}

__device__ __forceinline__ uint8_t receive(const Packet* packet, uint2& codes) {
  uint64_t low, high;
  do {
    low = ptx::load_relaxed(&packet->words[0]);
    high = ptx::load_relaxed(&packet->words[1]);
  } while ((low & high & kWritten) == 0);
  codes = make_uint2(static_cast<uint32_t>(low), static_cast<uint32_t>(high));
  return static_cast<uint8_t>(low >> 32);
}

}  // namespace cake_moe::sm90::experts

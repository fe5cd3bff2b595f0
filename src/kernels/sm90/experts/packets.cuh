// How hidden values get from the CTAs that compute FC1 to those that compute FC2: a block's codes and scale
// in two words, each of which says by a bit that it has been written. No count, fence or second read lies between.
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

// Before the grid barrier, by whole CTAs: the last ones, which have the least to do.
__device__ __forceinline__ void clear_packets(const Args& args) {
  const int packets = args.route.num_tokens * kTopK * kFc2Groups;
  for (int i = (gridDim.x - 1 - blockIdx.x) * kThreads + threadIdx.x; i < packets; i += gridDim.x * kThreads) {
    reinterpret_cast<uint4*>(args.packets)[i] = uint4{};
  }
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

// Token tiles of a launch whose CTAs route for themselves, and the routes that they hold.
#pragma once

#include <cstdint>

#include "plan/tables.h"

namespace cake_moe::route {

inline constexpr int kCtaTileRows = 8;  // most rows of a token tile
inline constexpr int kCtaRoutes = kFusedTokens * kTopK;

// A token tile in one word.
struct CtaTile {
  uint32_t word;

  __device__ explicit CtaTile(uint32_t packed) : word(packed) {}
  __device__ CtaTile(int expert, int first_row, int rows, int ordinal)
      : word(expert | first_row << 10 | (rows - 1) << 20 | ordinal << 23) {}
  __device__ int expert() const { return word & 1023; }
  __device__ int first_row() const { return word >> 10 & 1023; }
  __device__ int rows() const { return (word >> 20 & 7) + 1; }
  __device__ int ordinal() const { return word >> 23; }  // among the expert's tiles
};
static_assert(kExperts <= 1024 && kCtaRoutes <= 1024 && kCtaTileRows <= 8 && kCtaRoutes / kCtaTileRows <= 512);

// The routes of a tile's rows, in route order. ids: expert of each route, -1 where there is none; all in shared memory.
// By one warp.
__device__ __forceinline__ void find_routes(const int16_t* ids, const CtaTile& tile, int num_routes,
                                            int32_t (&routes)[kCtaTileRows]) {
  const int lane = threadIdx.x % 32;
  const int first = tile.ordinal() * kCtaTileRows, limit = first + tile.rows();
  __syncwarp();  // the previous tile's routes have been read
  int matches = 0;
  for (int base = 0; base < num_routes && matches < limit; base += 32) {
    const int route = base + lane;
    const bool match = route < num_routes && ids[route] == tile.expert();
    const uint32_t mask = __ballot_sync(~0u, match);
    const int index = matches + __popc(mask & ((1u << lane) - 1));
    if (match && index >= first && index < limit) routes[index - first] = route;
    matches += __popc(mask);
  }
  __syncwarp();
}

}  // namespace cake_moe::route

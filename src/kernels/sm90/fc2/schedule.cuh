// Which units a CTA of FC2 computes, and in which order.
#pragma once

#include "kernels/sm90/fc2/config.h"

namespace cake_moe::sm90::fc2 {

// Large calls deal whole tiles round robin; of the tiles that do not go round, and of all tiles of small calls, each
// CTA has one contiguous share.
template <typename C>
struct Schedule {
  int whole;        // units of whole tiles, which come first
  int units;        // of the CTA
  int tile, block;  // where its share begins

  __device__ explicit Schedule(int tiles) {
    const int ctas = gridDim.x, cta = blockIdx.x;
    const int rounds = tiles >= kRoundRobinTiles * ctas ? tiles / ctas : 0;
    const int64_t left = int64_t{tiles - rounds * ctas} * C::kRowBlocks;
    const int begin = static_cast<int>(left * cta / ctas), end = static_cast<int>(left * (cta + 1) / ctas);
    whole = rounds * C::kRowBlocks;
    units = whole + end - begin;
    tile = rounds * ctas + begin / C::kRowBlocks;
    block = begin % C::kRowBlocks;
  }
};

// Walks through a CTA's sequence of units a token tile at a time. Steps, where divisions would cost registers.
template <typename C>
struct TileWalk {
  int tile;
  int end;          // index behind the tile's last unit of this CTA
  int first_block;  // block of rows of a unit, less its index

  __device__ __forceinline__ void start() {
    tile = static_cast<int>(blockIdx.x - gridDim.x);
    end = 0;
  }

  // On to the next tile; false if there is none.
  __device__ __forceinline__ bool next(const Schedule<C>& schedule) {
    const int begin = end;
    if (begin == schedule.units) return false;
    const bool whole = begin < schedule.whole, share = begin == schedule.whole;
    tile = share ? schedule.tile : tile + (whole ? static_cast<int>(gridDim.x) : 1);
    const int block = share ? schedule.block : 0;
    end = min(begin + C::kRowBlocks - block, schedule.units);
    first_block = block - begin;
    return true;
  }

  // Block of rows of the unit at that index of the sequence.
  __device__ __forceinline__ int row_block(int index) const { return first_block + index; }
};

}  // namespace cake_moe::sm90::fc2

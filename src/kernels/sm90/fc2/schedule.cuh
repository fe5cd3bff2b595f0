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

// A CTA's units of one token tile, [begin, end) in its sequence. Steps, where divisions would cost registers.
template <typename C>
class TilePart {
 public:
  __device__ __forceinline__ explicit TilePart(const Schedule<C>& schedule) : schedule_(schedule) {
    tile = static_cast<int>(blockIdx.x - gridDim.x);
    next();
  }

  // The part behind this one; empty if there is none.
  __device__ __forceinline__ void next() {
    begin = end;
    const bool whole = begin < schedule_.whole, share = begin == schedule_.whole;
    tile = share ? schedule_.tile : tile + (whole ? static_cast<int>(gridDim.x) : 1);
    block = share ? schedule_.block : 0;
    end = min(begin + C::kRowBlocks - block, schedule_.units);
  }

  __device__ __forceinline__ bool empty() const { return begin >= end; }

  int tile;
  int block;  // of rows, of the first unit
  int begin, end = 0;

 private:
  const Schedule<C>& schedule_;
};

}  // namespace cake_moe::sm90::fc2

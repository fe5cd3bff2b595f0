// Which units a CTA of FC2 computes: every role walks the same sequence.
#pragma once

#include "kernels/sm90/fc2/config.h"

namespace cake_moe::sm90::fc2 {

// Runs of `length` units from `first`, `stride` apart, below `limit`.
struct Schedule {
  int first, length, stride, limit;

  __device__ Schedule(int tiles, int row_blocks) {
    const int units = tiles * row_blocks, ctas = gridDim.x, cta = blockIdx.x;
    if (tiles >= kRoundRobinTiles * ctas) {
      length = row_blocks / kRunsOfTile;
      first = cta * length;
      stride = ctas * length;
      limit = units;
    } else {
      first = static_cast<int>(static_cast<int64_t>(units) * cta / ctas);
      limit = static_cast<int>(static_cast<int64_t>(units) * (cta + 1) / ctas);
      length = limit - first;
      stride = max(length, 1);
    }
  }

  // body(unit, next): `next` is the unit that follows, or -1.
  template <typename Body>
  __device__ __forceinline__ void for_each(const Body& body) const {
    for (int run = first; run < limit; run += stride) {
      const int end = min(run + length, limit);
      for (int unit = run; unit < end; ++unit) {
        body(unit, unit + 1 < end ? unit + 1 : run + stride < limit ? run + stride : -1);
      }
    }
  }
};

}  // namespace cake_moe::sm90::fc2

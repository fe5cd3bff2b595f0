// Which part of the expert GEMMs a work unit is.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "plan/problem.h"

namespace cake_moe::cpu {

struct WorkUnit {
  int expert;
  int weight_tile;
  int first_row;
  int rows;  // 1..tile_tokens
};

// Units of all experts in order: weight tile by weight tile, and within one the expert's rows in tiles of tile_tokens,
// so that neighbouring units use the same weights. Experts without rows have no unit.
class Schedule {
 public:
  // offsets: [E + 1], first row of each expert.
  Schedule(const int32_t* offsets, int tile_tokens, int weight_tiles)
      : offsets_(offsets), tile_tokens_(tile_tokens), weight_tiles_(weight_tiles) {
    for (int e = 0; e < kExperts; ++e) first_unit_[e + 1] = first_unit_[e] + token_tiles(e) * weight_tiles;
  }

  int64_t size() const { return first_unit_[kExperts]; }

  WorkUnit operator[](int64_t unit) const {
    const auto after = std::upper_bound(first_unit_.begin(), first_unit_.end(), unit);
    const int expert = static_cast<int>(after - first_unit_.begin()) - 1;
    const int64_t local = unit - first_unit_[expert];
    const int tiles = token_tiles(expert);
    const int first_row = offsets_[expert] + static_cast<int>(local % tiles) * tile_tokens_;
    return {expert, static_cast<int>(local / tiles), first_row,
            std::min(tile_tokens_, offsets_[expert + 1] - first_row)};
  }

 private:
  int token_tiles(int expert) const {
    return (offsets_[expert + 1] - offsets_[expert] + tile_tokens_ - 1) / tile_tokens_;
  }

  const int32_t* offsets_;
  int tile_tokens_;
  int weight_tiles_;
  std::array<int64_t, kExperts + 1> first_unit_{};
};

}  // namespace cake_moe::cpu

// How wide the MMAs of an instance are: as its tile, and narrower for tiles that are not full.
#pragma once

namespace cake_moe::sm90 {

// Columns of the next narrower MMA, or <= 0: every multiple of 8 down to `fine`, every other one below. Each width is
// code of its own, and too much of it would not fit the instruction cache.
constexpr int narrower(int columns, int fine) { return columns > fine ? columns - 8 : columns - 16; }

}  // namespace cake_moe::sm90

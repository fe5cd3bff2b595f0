// What FC2's CTAs draw from the work counter: items, runs of units of one token tile, in the order in which FC1
// finishes the tiles.
#pragma once

namespace cake_moe::sm90::fc2 {

struct Item {
  int tile, begin, end;  // units of the tile
};

// Whole tiles first, since an item costs the loading of its tokens. Of the last tiles one for each CTA is halved, and
// one for each second CTA is cut into parts, so that the CTAs end together: into quarters or, where there are few
// tiles, so many that there is about one for each CTA.
template <int kRowBlocks>
class Items {
 public:
  __device__ Items(int tiles, int ctas)
      : parts_(min(kRowBlocks, max(4, ctas / max(tiles, 1)))),
        parted_(min(tiles, max(ctas / 2, 1))),
        halved_(min(tiles - parted_, ctas)),
        whole_(tiles - parted_ - halved_) {}
  __device__ int count() const { return whole_ + 2 * halved_ + parts_ * parted_; }
  __device__ Item operator[](int index) const {
    if (index < whole_) return {index, 0, kRowBlocks};
    index -= whole_;
    if (index < 2 * halved_) return part(whole_, index, 2);
    return part(whole_ + halved_, index - 2 * halved_, parts_);
  }

 private:
  __device__ static Item part(int first_tile, int index, int parts) {
    const int at = index % parts;
    return {first_tile + index / parts, at * kRowBlocks / parts, (at + 1) * kRowBlocks / parts};
  }

  int parts_, parted_, halved_, whole_;
};

}  // namespace cake_moe::sm90::fc2

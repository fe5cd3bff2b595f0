#include "plan/tables.h"

namespace cake_moe {
namespace {

constexpr GemmShape kCpuGemm = {128, 0, 0};
constexpr PathRow kCpuRows[] = {
    {kMaxTokens, "staged", Shape::kStaged, 32, kCpuGemm, kCpuGemm, Pool::kStatic,
     "128 stored rows share the cache lines of their interleaved scales; they stay in the L2 while 32 rows pass"},
};

// sm_90a. Up to 8 rows of a tile two CTAs share an SM (but for the path of one launch); above, one CTA fills it: as
// many consumer warpgroups of 64 rows each as the accumulators of a token tile leave registers for.
constexpr GemmShape kDecode = {128, 672, 1}, kNarrowFc1 = {128, 320, 2}, kNarrowFc2 = {128, 288, 2};
constexpr GemmShape kSix = {384, 896, 1}, kFour = {256, 640, 1}, kTwoFc2 = {128, 288, 1};

// A token tile is the smallest that holds an expert's rows of a uniform routing, M * 16 / 896 on average, or an equal
// share of them where one tile cannot. The limits are where the measured times cross.
constexpr PathRow kSm90Rows[] = {
    {kFewTokens, "decode", Shape::kWhole, 8, kDecode, kDecode, Pool::kStatic,
     "latency decides: no CTA waits for another one's quantising or routing"},
    {kRoutedTokens, "routed_8", Shape::kRouted, 8, kNarrowFc1, kNarrowFc2, Pool::kPerSm, "up to 1.1 rows an expert"},
    {224, "weight_bound_8", Shape::kPrologue, 8, kNarrowFc1, kNarrowFc2, Pool::kPerSm, "up to 4 rows an expert"},
    {672, "weight_bound_16", Shape::kPrologue, 16, kSix, kFour, Pool::kPerSm, "up to 12 rows an expert"},
    {960, "weight_bound_24", Shape::kPrologue, 24, kSix, kFour, Pool::kPerSm, "up to 17 rows an expert"},
    {1312, "weight_bound_32", Shape::kPrologue, 32, kSix, kFour, Pool::kPerSm, "up to 23 rows an expert"},
    {2048, "balanced_48", Shape::kPrologue, 48, kSix, kFour, Pool::kPerSm, "up to 37 rows an expert"},
    {2880, "balanced_64", Shape::kPrologue, 64, kSix, kFour, Pool::kPerSm, "up to 51 rows an expert"},
    {3584, "balanced_80", Shape::kPrologue, 80, kFour, kFour, Pool::kPerSm, "up to 64 rows an expert"},
    {4736, "tensor_bound_96", Shape::kPrologue, 96, kFour, kFour, Pool::kPerSm, "up to 85 rows an expert"},
    {5312, "tensor_bound_112", Shape::kPrologue, 112, kFour, kTwoFc2, Pool::kPerSm, "up to 95 rows an expert"},
    {7040, "tensor_bound_128", Shape::kPrologue, 128, kFour, kTwoFc2, Pool::kPerSm, "up to 126 rows an expert"},
    {8448, "tensor_bound_2x80", Shape::kPrologue, 80, kFour, kFour, Pool::kPerSm, "up to 151 rows: two tiles"},
    {10240, "tensor_bound_2x96", Shape::kPrologue, 96, kFour, kFour, Pool::kPerSm, "up to 183 rows: two tiles"},
    {11264, "tensor_bound_2x112", Shape::kPrologue, 112, kFour, kTwoFc2, Pool::kPerSm, "up to 201 rows: two tiles"},
    {14080, "tensor_bound_2x128", Shape::kPrologue, 128, kFour, kTwoFc2, Pool::kPerSm, "up to 251 rows: two tiles"},
    {kMaxTokens, "tensor_bound_3x112", Shape::kPrologue, 112, kFour, kTwoFc2, Pool::kPerSm,
     "up to 293 rows: three tiles"},
};

// sm_100a and sm_103a: 128 weight rows on the MMA's M side; the instruction takes as many columns as a tile has rows,
// so a token tile costs shared memory, not time. One kernel computes both GEMMs. No such GPU was at hand: the limits
// follow from the rows that an expert sees, M * 16 / 896 on average and two standard deviations more.
constexpr GemmShape kUnits = {128, 320, 1}, kWideUnits = {128, 384, 1};
constexpr PathRow kSm100Rows[] = {
    {kFusedTokens, "decode", Shape::kFused, 8, kUnits, kUnits, Pool::kPerSm,
     "about one row an expert: the weight stream decides, and a launch costs as much as an expert"},
    {224, "weight_bound_8", Shape::kPooled, 8, kUnits, kUnits, Pool::kPerSm, "up to 4 rows an expert"},
    {544, "weight_bound_16", Shape::kPooled, 16, kUnits, kUnits, Pool::kPerSm, "up to 10 rows an expert"},
    {1216, "weight_bound_32", Shape::kPooled, 32, kUnits, kUnits, Pool::kPerSm, "up to 22 rows an expert"},
    {2752, "weight_bound_64", Shape::kPooled, 64, kUnits, kUnits, Pool::kPerSm, "up to 49 rows an expert"},
    {4352, "balanced_96", Shape::kPooled, 96, kWideUnits, kWideUnits, Pool::kPerSm, "up to 78 rows an expert"},
    {5984, "balanced_128", Shape::kPooled, 128, kWideUnits, kWideUnits, Pool::kPerSm, "up to 107 rows an expert"},
    {9280, "balanced_192", Shape::kPooled, 192, kWideUnits, kWideUnits, Pool::kPerSm, "up to 166 rows an expert"},
    {12416, "balanced_2x128", Shape::kPooled, 128, kWideUnits, kWideUnits, Pool::kPerSm, "up to 222 rows: two tiles"},
    {kMaxTokens, "balanced_2x192", Shape::kPooled, 192, kWideUnits, kWideUnits, Pool::kPerSm,
     "up to 293 rows: two tiles"},
};

}  // namespace

std::span<const PathRow> path_table(Arch arch) {
  switch (arch) {
    case Arch::kCpu:
      return kCpuRows;
    case Arch::kSm90a:
      return kSm90Rows;
    case Arch::kSm100a:
    case Arch::kSm103a:
      return kSm100Rows;
  }
  return {};
}

}  // namespace cake_moe

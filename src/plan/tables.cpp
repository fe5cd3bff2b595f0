#include "plan/tables.h"

namespace cake_moe {
namespace {

constexpr PathRow kCpuRows[] = {
    {kMaxTokens, "staged", Shape::kStaged, 128, 32, 0, Pool::kStatic,
     "128 stored rows share the cache lines of their interleaved scales; they stay in the L2 while 32 rows pass"},
};

// An expert sees M * 16 / 896 rows on average; a token tile is the smallest that usually holds them.
constexpr PathRow kSm90Rows[] = {
    {64, "decode", Shape::kFused, 64, 8, 416, Pool::kStatic,
     "about one row an expert: the weight stream decides, and a launch costs as much as an expert"},
    {448, "weight_bound_8", Shape::kPrologue, 64, 8, 416, Pool::kStatic, "up to 8 rows an expert"},
    {896, "weight_bound_16", Shape::kPrologue, 64, 16, 416, Pool::kStatic, "up to 16 rows an expert"},
    {1792, "weight_bound_32", Shape::kPrologue, 64, 32, 416, Pool::kStatic, "up to 32 rows an expert"},
    {4095, "balanced_64", Shape::kPrologue, 64, 64, 416, Pool::kStatic, "weight stream and tensor cores near balance"},
    {kMaxTokens, "tensor_bound_128", Shape::kPrologue, 128, 128, 384, Pool::kStatic,
     "dequantise once for 128 tokens; two consumer warpgroups alternate"},
};

// The MMA's M side takes 128 weight rows; scale factors lie in the layout that the tensor core reads.
constexpr PathRow kSm100Rows[] = {
    {64, "decode", Shape::kFused, 128, 8, 256, Pool::kStatic,
     "about one row an expert: the weight stream decides, and a launch costs as much as an expert"},
    {448, "weight_bound_8", Shape::kPrologue, 128, 8, 256, Pool::kPerSm, "up to 8 rows an expert"},
    {896, "weight_bound_16", Shape::kPrologue, 128, 16, 256, Pool::kPerSm, "up to 16 rows an expert"},
    {1792, "weight_bound_32", Shape::kPrologue, 128, 32, 256, Pool::kPerSm, "up to 32 rows an expert"},
    {4095, "weight_bound_64", Shape::kPrologue, 128, 64, 256, Pool::kPerSm, "up to 73 rows an expert"},
    {8191, "tensor_bound_128", Shape::kPrologue, 128, 128, 256, Pool::kStatic, "up to 146 rows an expert"},
    {kMaxTokens, "tensor_bound_256", Shape::kPrologue, 128, 256, 256, Pool::kStatic, "up to 293 rows an expert"},
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

#include "plan/workspace.h"

namespace cake_moe {
namespace {

constexpr int64_t kTileBytes = 4 * sizeof(int32_t);

constexpr int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

int64_t section_bytes(Section section, const Problem& problem) {
  const int64_t tokens = problem.num_tokens;
  const int64_t rows = tokens * kTopK;
  const bool sm90 = problem.arch == Arch::kSm90a, gpu = problem.arch != Arch::kCpu;
  switch (section) {
    case Section::kBeta:
    case Section::kLinearBeta:
      return kExperts * sizeof(float);
    case Section::kExpertOffsets:
      return (kExperts + 1) * sizeof(int32_t);
    case Section::kRowRoute:
    case Section::kRouteRow:
      return rows * sizeof(int32_t);
    case Section::kXq:
      return tokens * kFc1RowBytes;
    case Section::kXs:
      return tokens * kFc1Groups;
    case Section::kHq:
      return rows * kFc2RowBytes;
    case Section::kHs:
      return rows * kFc2Groups;
    case Section::kY:
      return rows * kHidden * sizeof(uint16_t);
    case Section::kXHalf:
      return sm90 ? tokens * kHidden * sizeof(uint16_t) : 0;
    case Section::kTiles:
      return gpu ? max_token_tiles(tokens) * kTileBytes : 0;
    case Section::kTileCount:
      return gpu ? sizeof(int32_t) : 0;
    case Section::kWorkCounter:
      return sizeof(uint32_t);
    case Section::kProgress:
      return sm90 ? 3 * sizeof(int32_t) : 0;
    case Section::kCount:
      break;
  }
  return 0;
}

// The affine size query must cover the sections' own growth plus one alignment gap each.
constexpr int64_t kExactBytesPerToken = kTopK * (2 * 4 + kFc2RowBytes + kFc2Groups + 2 * kHidden) + kFc1RowBytes +
                                        kFc1Groups + 2 * kHidden + kTopK / kMinTileTokens * kTileBytes;
static_assert(kWorkspaceBytesPerToken >= kExactBytesPerToken);
static_assert(kWorkspaceFixedBytes >= kExperts * kTileBytes + 2 * kExperts * 4 + (kExperts + 1) * 4 + 5 * 4 +
                                          (kNumSections + 1) * kSectionAlignment);

}  // namespace

const char* section_name(Section section) {
  switch (section) {
    case Section::kBeta:
      return "beta";
    case Section::kLinearBeta:
      return "linear_beta";
    case Section::kExpertOffsets:
      return "expert_offsets";
    case Section::kRowRoute:
      return "row_route";
    case Section::kRouteRow:
      return "route_row";
    case Section::kXq:
      return "xq";
    case Section::kXs:
      return "xs";
    case Section::kHq:
      return "hq";
    case Section::kHs:
      return "hs";
    case Section::kY:
      return "y";
    case Section::kXHalf:
      return "x_half";
    case Section::kTiles:
      return "tiles";
    case Section::kTileCount:
      return "tile_count";
    case Section::kWorkCounter:
      return "work_counter";
    case Section::kProgress:
      return "progress";
    case Section::kCount:
      break;
  }
  return "?";
}

WorkspaceLayout workspace_layout(const Problem& problem) {
  WorkspaceLayout layout{};
  int64_t offset = 0;
  for (int i = 0; i < kNumSections; ++i) {
    const int64_t bytes = section_bytes(static_cast<Section>(i), problem);
    layout.sections[i] = {offset, bytes};
    offset = round_up(offset + bytes, kSectionAlignment);
  }
  layout.total = offset;
  return layout;
}

}  // namespace cake_moe

// Where every intermediate of a call lies in the caller's workspace.
#pragma once

#include <array>
#include <cstdint>

#include "plan/problem.h"

namespace cake_moe {

// Sections in the order in which they lie. A "row" is one (token, slot) route; rows are compact and sorted by
// expert, so R <= 16 * M rows exist and no tile padding is stored.
enum class Section : uint8_t {
  kBeta,           // float32 [E], the default situ_beta, written by prepare_workspace
  kLinearBeta,     // float32 [E], the default situ_linear_beta, written by prepare_workspace
  kExpertOffsets,  // int32 [E + 1], first row of each expert; the last entry is R
  kRowRoute,       // int32 [16 * M], route = token * 16 + slot of a row
  kRouteRow,       // int32 [16 * M], row of a route; kNoRoute or kInvalidRoute where there is none
  kXq,             // uint8 [M, H / 2], quantised input
  kXs,             // uint8 [M, H / 16], its e4m3 block scales, linear
  kHq,             // uint8 [16 * M, I / 2], requantised SiTU output of a row
  kHs,             // uint8 [16 * M, I / 16], its e4m3 block scales, linear
  kY,              // bf16 [16 * M, H], FC2 output of a row, scaled by dA*dW2
  kXHalf,          // fp16 [M, H], input in the K order of kernels/sm90/dequant.cuh, or few tokens' packets; sm_90a only
  kTiles,        // int32 [max_token_tiles(M), 4], expert, first row, rows of each token tile, then the parts of its FC1
                 // that are finished where FC2 begins before all are; GPU only
  kTileCount,    // int32 [1], token tiles of this call; GPU only
  kWorkCounter,  // uint32 [1], next work item; seeded on the GPU by every call whose path has a pool
  kProgress,     // int32 [3], how far the CTAs of FC2 are where it finalises, too; sm_90a only
  kCount
};
inline constexpr int kNumSections = static_cast<int>(Section::kCount);

// Most token tiles of any routing: every expert's rows are cut into tiles of at least kMinTileTokens.
inline constexpr int kMinTileTokens = 8;
constexpr int64_t max_token_tiles(int64_t tokens) {
  const int64_t rows = tokens * kTopK, spread = kExperts + rows / kMinTileTokens;
  return rows < spread ? rows : spread;
}

inline constexpr int32_t kNoRoute = -1;       // the caller's id was -1: no work, contributes 0
inline constexpr int32_t kInvalidRoute = -2;  // any other id outside [0, E): the token's output row is NaN

// Required alignment of the workspace's base address, and the alignment of every section.
inline constexpr int64_t kCpuAlignment = 64;
inline constexpr int64_t kSectionAlignment = 128;

struct Extent {
  int64_t offset;  // bytes from the workspace base
  int64_t bytes;
};

struct WorkspaceLayout {
  std::array<Extent, kNumSections> sections;
  int64_t total;  // bytes, at most workspace_bytes(num_tokens)

  const Extent& operator[](Section section) const { return sections[static_cast<int>(section)]; }
};

const char* section_name(Section section);

// Layout for exactly this problem. The two constant sections have the same offsets for every problem, so one buffer
// serves many prepared token counts.
WorkspaceLayout workspace_layout(const Problem& problem);

// Bytes that hold every layout of every architecture for every count up to max_tokens (1..kMaxTokens). Affine in
// max_tokens, so that a symbolic count stays symbolic under torch.compile.
inline constexpr int64_t kWorkspaceFixedBytes = 32768;
inline constexpr int64_t kWorkspaceBytesPerToken = 127488;
constexpr int64_t workspace_bytes(int64_t max_tokens) {
  return kWorkspaceFixedBytes + kWorkspaceBytesPerToken * max_tokens;
}

}  // namespace cake_moe

// The fixed geometry of the operator and the three things a plan depends on.
#pragma once

#include <cstdint>

namespace cake_moe {

// Kimi-K3 on one rank of an 8-way tensor-parallel group.
inline constexpr int kHidden = 3584;       // H, columns of the input and of the output
inline constexpr int kIntermediate = 384;  // I, features of one expert on this rank
inline constexpr int kExperts = 896;       // E
inline constexpr int kTopK = 16;           // routes of a token
inline constexpr int kMaxTokens = 16384;   // largest M
inline constexpr int kTensorParallel = 8;

// NVFP4: two e2m1 elements a byte, one e4m3 scale for kGroup elements along K.
inline constexpr int kGroup = 16;
inline constexpr int kFc1Rows = 2 * kIntermediate;         // up and gate rows, interleaved
inline constexpr int kFc1RowBytes = kHidden / 2;           // packed bytes of an FC1 weight row
inline constexpr int kFc1Groups = kHidden / kGroup;        // block scales of an FC1 weight row
inline constexpr int kFc2Rows = kHidden;                   // output rows
inline constexpr int kFc2RowBytes = kIntermediate / 2;     // packed bytes of an FC2 weight row
inline constexpr int kFc2Groups = kIntermediate / kGroup;  // block scales of an FC2 weight row

// SiTU smoothing parameters where the caller gives none.
inline constexpr float kDefaultBeta = 4.0f;
inline constexpr float kDefaultLinearBeta = 25.0f;

enum class Arch : uint8_t { kCpu, kSm90a, kSm100a, kSm103a };
inline constexpr Arch kAllArchs[] = {Arch::kCpu, Arch::kSm90a, Arch::kSm100a, Arch::kSm103a};

constexpr const char* arch_name(Arch arch) {
  switch (arch) {
    case Arch::kCpu:
      return "cpu";
    case Arch::kSm90a:
      return "sm_90a";
    case Arch::kSm100a:
      return "sm_100a";
    case Arch::kSm103a:
      return "sm_103a";
  }
  return "?";
}

struct Problem {
  int num_tokens;  // M, 1..kMaxTokens
  Arch arch;
  int sm_count;  // SMs the kernels may use (a partition may own fewer than the chip); ignored on the CPU

  bool operator==(const Problem&) const = default;
};

}  // namespace cake_moe

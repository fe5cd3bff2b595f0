// Tuning knowledge as data: for each architecture, which path serves which token counts, and why.
#pragma once

#include <cstdint>
#include <span>

#include "plan/problem.h"

namespace cake_moe {

// How a path is cut into launches.
enum class Shape : uint8_t {
  kStaged,    // quantise, route, FC1, FC2, finalise, one after the other (CPU)
  kPrologue,  // quantise and route together, FC1, FC2 and finalise together
  kRouted,    // quantise, route and FC1 together, FC2 and finalise together
  kPooled,    // quantise and route together, FC1 and FC2 in one launch, finalise
  kFused,     // quantise, route, FC1 and FC2 in one launch, finalise
  kWhole,     // everything in one launch
};

// Who hands out the work items of the launch that computes FC2.
enum class Pool : uint8_t {
  kStatic,  // no counter: items are dealt by index, work_counter is unused
  kPerSm,   // the persistent CTAs of all SMs draw items from work_counter
};

// How an expert GEMM is cut. The launchers refuse a shape that they have no instance of.
struct GemmShape {
  int tile_rows;    // weight rows a tile covers
  int threads;      // a CTA
  int ctas_per_sm;  // of the persistent grid
};

struct PathRow {
  int max_tokens;  // serves counts from the row above it, exclusive, to this one, inclusive
  const char* path;
  Shape shape;
  int tile_tokens;  // rows of one expert a tile covers
  GemmShape fc1;    // of kPooled, kFused and kWhole: the launch that holds both
  GemmShape fc2;
  Pool fc2_pool;
  const char* why;
};

std::span<const PathRow> path_table(Arch arch);

// Most tokens of sm_90a's two launches (kRouted): one CTA routes them while the others quantise.
inline constexpr int kRoutedTokens = 64;

// Most tokens of sm_100a's fused path (kFused): a CTA finds its work in at most 1024 ids by itself.
inline constexpr int kFusedTokens = 64;

// Most tokens of sm_90a's one launch (kWhole): every CTA quantises all of them, a thread routes one route.
inline constexpr int kFewTokens = 4;

// The GPU's prologue: CTAs of one cluster route, the others quantise.
inline constexpr int kPrologueThreads = 512;
inline constexpr int kPrologueCtasPerSm = 3;          // of the grid: faster than the two that are resident
inline constexpr int kPrologueItems = kHidden / 512;  // of a token, one a warp at a time
inline constexpr int kRouteCluster = 8;

// The GPU's finalise: a thread has 8 columns; with few tokens narrow CTAs spread a token over several SMs, with many a
// persistent CTA an SM has the rows of its next tokens on their way.
inline constexpr int kFinalizeTokenThreads = kHidden / 8;
inline constexpr int kFinalizeNarrowThreads = 64;
inline constexpr int kFinalizeWideTokens = 64;  // from here a CTA has a whole token
constexpr int finalize_threads(int num_tokens) {
  return num_tokens < kFinalizeWideTokens ? kFinalizeNarrowThreads : kFinalizeTokenThreads;
}
static_assert(kFinalizeTokenThreads % kFinalizeNarrowThreads == 0);
inline constexpr int kFinalizeRingTokens = 1024;  // from here persistent CTAs
inline constexpr int kFinalizeRingThreads = kFinalizeTokenThreads + 32;

}  // namespace cake_moe

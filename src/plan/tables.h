// Tuning knowledge as data: for each architecture, which path serves which token counts, and why.
#pragma once

#include <cstdint>
#include <span>

#include "plan/problem.h"

namespace cake_moe {

// How a path is cut into launches.
enum class Shape : uint8_t {
  kStaged,    // quantise, route, FC1, FC2, finalise, one after the other (CPU)
  kPrologue,  // quantise and route together, FC1, FC2, finalise
  kFused,     // quantise, route, FC1 and FC2 in one launch, finalise
};

// Who hands out FC2's work items.
enum class Pool : uint8_t {
  kStatic,  // no counter: items are dealt by index, work_counter is unused
  kPerSm,   // one persistent CTA an SM draws items from work_counter
};

struct PathRow {
  int max_tokens;  // serves counts from the row above it, exclusive, to this one, inclusive
  const char* path;
  Shape shape;
  int tile_rows;    // weight rows a tile covers
  int tile_tokens;  // rows of one expert a tile covers
  int threads;      // a CTA of the expert GEMMs
  Pool fc2_pool;
  const char* why;
};

std::span<const PathRow> path_table(Arch arch);

}  // namespace cake_moe

// The plan: which launches serve a problem, with which tiles, grids and workspace. A pure function of the problem;
// the launchers, the size query, the fake implementations and the tests all read it.
#pragma once

#include <array>
#include <cstdint>

#include "plan/problem.h"
#include "plan/workspace.h"

namespace cake_moe {

enum class Stage : uint8_t {
  kQuantize,   // input bf16 -> xq, xs
  kRoute,      // expert ids -> expert_offsets, row_route, route_row
  kPrologue,   // quantise and route in one launch
  kRoutedFc1,  // quantise, route and FC1 in one launch
  kFc1,        // FC1, SiTU, requantise -> hq, hs
  kFc2,        // FC2 -> y; on a GPU also y -> output
  kExperts,    // FC1 and FC2 in one launch; without a prologue it routes and quantises, too; alone it does everything
  kFinalize,   // y -> output
};
const char* stage_name(Stage stage);

// One launch of a plan. On the CPU `grid` counts work units and `threads` is 0.
struct Launch {
  Stage stage;
  int tile_rows = 0;    // weight rows a tile covers; 0 for stages without weights
  int tile_tokens = 0;  // rows (or tokens) a tile covers
  int64_t grid = 0;     // CTAs, or work units on the CPU; an upper bound where it depends on the routing
  int threads = 0;      // a CTA
  int cluster = 1;      // CTAs a cluster
  bool pdl = false;     // waits for its predecessor with griddepcontrol
};

inline constexpr int kMaxLaunches = 5;

struct Plan {
  Problem problem;
  const char* path;  // name of the row of the table that was chosen
  const char* why;   // its reason
  std::array<Launch, kMaxLaunches> launches;
  int num_launches;
  int fc2_pool;  // persistent CTAs that draw work items from work_counter; 0: the counter is unused on this path
  WorkspaceLayout workspace;
};

// Throws std::invalid_argument for num_tokens outside 1..kMaxTokens or a GPU architecture with sm_count < 1.
Plan make_plan(const Problem& problem);

}  // namespace cake_moe

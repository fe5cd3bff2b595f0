#include "plan/plan.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "plan/tables.h"

namespace cake_moe {
namespace {

int64_t ceil_div(int64_t value, int64_t unit) { return (value + unit - 1) / unit; }
int64_t round_up(int64_t value, int64_t unit) { return ceil_div(value, unit) * unit; }

const PathRow& find_row(const Problem& problem) {
  const auto table = path_table(problem.arch);
  return *std::find_if(table.begin(), table.end(),
                       [&](const PathRow& row) { return problem.num_tokens <= row.max_tokens; });
}

// Most tiles that any routing can need: R rows fill ceil-divided tiles of at most min(R, E) experts.
int64_t max_tiles(int num_tokens, int tile_tokens, int weight_rows, int tile_rows) {
  const int64_t rows = int64_t{num_tokens} * kTopK;
  const int64_t experts = std::min<int64_t>(rows, kExperts);
  const int64_t row_tiles = experts + (rows - experts) / tile_tokens;
  return row_tiles * ceil_div(weight_rows, tile_rows);
}

class Builder {
 public:
  Builder(const Problem& problem, const PathRow& row) : problem_(problem), row_(row) {
    plan_.problem = problem;
    plan_.path = row.path;
    plan_.why = row.why;
    plan_.fc2_pool = row.fc2_pool == Pool::kPerSm ? problem.sm_count * row.fc2.ctas_per_sm : 0;
    plan_.workspace = workspace_layout(problem);
  }

  Plan build() {
    switch (row_.shape) {
      case Shape::kStaged:
        add({.stage = Stage::kQuantize, .tile_tokens = 1, .grid = problem_.num_tokens});
        add({.stage = Stage::kRoute, .tile_tokens = problem_.num_tokens, .grid = 1});
        add_gemms();
        add_finalize();
        break;
      case Shape::kPrologue:
        add_prologue();
        add_gemms();
        break;
      case Shape::kRouted:
        add_gemm(Stage::kRoutedFc1, kFc1Rows, row_.fc1);
        add_gemm(Stage::kFc2, kFc2Rows, row_.fc2);
        break;
      case Shape::kPooled:
        add_prologue();
        add_experts();
        add_finalize();
        break;
      case Shape::kFused:
        add_experts();
        add_finalize();
        break;
      case Shape::kWhole:
        add_experts();
        break;
    }
    return plan_;
  }

 private:
  bool on_gpu() const { return problem_.arch != Arch::kCpu; }

  void add(Launch launch) {
    launch.pdl = on_gpu() && plan_.num_launches > 0;
    plan_.launches[plan_.num_launches++] = launch;
  }

  void add_prologue() {
    const int64_t items = int64_t{problem_.num_tokens} * kPrologueItems;
    const int64_t most = std::max(kPrologueCtasPerSm * problem_.sm_count - kRouteCluster, 1);
    const int64_t quantizers = std::min(ceil_div(items, kPrologueThreads / 32), most);
    add({.stage = Stage::kPrologue,
         .tile_tokens = 1,
         .grid = kRouteCluster + round_up(quantizers, kRouteCluster),
         .threads = kPrologueThreads,
         .cluster = kRouteCluster});
  }

  void add_gemm(Stage stage, int weight_rows, const GemmShape& shape) {
    const int64_t tiles = max_tiles(problem_.num_tokens, row_.tile_tokens, weight_rows, shape.tile_rows);
    const int64_t resident = int64_t{problem_.sm_count} * shape.ctas_per_sm;
    add({.stage = stage,
         .tile_rows = shape.tile_rows,
         .tile_tokens = row_.tile_tokens,
         .grid = on_gpu() ? std::min(tiles, resident) : tiles,
         .threads = shape.threads});
  }

  void add_experts() {
    add({.stage = Stage::kExperts,
         .tile_rows = row_.fc1.tile_rows,
         .tile_tokens = row_.tile_tokens,
         .grid = int64_t{problem_.sm_count} * row_.fc1.ctas_per_sm,
         .threads = row_.fc1.threads});
  }

  void add_gemms() {
    add_gemm(Stage::kFc1, kFc1Rows, row_.fc1);
    add_gemm(Stage::kFc2, kFc2Rows, row_.fc2);
  }

  void add_finalize() {
    if (on_gpu() && problem_.num_tokens >= kFinalizeRingTokens) {
      const int64_t grid = std::min(problem_.num_tokens, problem_.sm_count);
      add({.stage = Stage::kFinalize, .tile_tokens = 1, .grid = grid, .threads = kFinalizeRingThreads});
      return;
    }
    const int threads = on_gpu() ? finalize_threads(problem_.num_tokens) : 0;
    const int64_t parts = on_gpu() ? kFinalizeTokenThreads / threads : 1;
    add({.stage = Stage::kFinalize, .tile_tokens = 1, .grid = problem_.num_tokens * parts, .threads = threads});
  }

  const Problem& problem_;
  const PathRow& row_;
  Plan plan_{};
};

}  // namespace

const char* stage_name(Stage stage) {
  switch (stage) {
    case Stage::kQuantize:
      return "quantize";
    case Stage::kRoute:
      return "route";
    case Stage::kPrologue:
      return "prologue";
    case Stage::kRoutedFc1:
      return "routed_fc1";
    case Stage::kFc1:
      return "fc1";
    case Stage::kFc2:
      return "fc2";
    case Stage::kExperts:
      return "experts";
    case Stage::kFinalize:
      return "finalize";
  }
  return "?";
}

Plan make_plan(const Problem& problem) {
  if (problem.num_tokens < 1 || problem.num_tokens > kMaxTokens) {
    throw std::invalid_argument("plan: num_tokens must be in 1.." + std::to_string(kMaxTokens) + ", got " +
                                std::to_string(problem.num_tokens));
  }
  if (problem.arch != Arch::kCpu && problem.sm_count < 1) {
    throw std::invalid_argument("plan: sm_count must be at least 1, got " + std::to_string(problem.sm_count));
  }
  return Builder(problem, find_row(problem)).build();
}

}  // namespace cake_moe

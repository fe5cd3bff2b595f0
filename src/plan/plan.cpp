#include "plan/plan.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "plan/tables.h"

namespace cake_moe {
namespace {

constexpr int kStageThreads = 256;  // a CTA of the stages without weights

int64_t ceil_div(int64_t value, int64_t unit) { return (value + unit - 1) / unit; }

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
    plan_.fc2_pool = row.fc2_pool == Pool::kPerSm ? problem.sm_count : 0;
    plan_.workspace = workspace_layout(problem);
  }

  Plan build() {
    switch (row_.shape) {
      case Shape::kStaged:
        add(Stage::kQuantize, 0, 1, problem_.num_tokens, 0);
        add(Stage::kRoute, 0, problem_.num_tokens, 1, 0);
        add_gemms();
        break;
      case Shape::kPrologue:
        add(Stage::kPrologue, 0, 1, problem_.num_tokens, kStageThreads);
        add_gemms();
        break;
      case Shape::kFused:
        add(Stage::kExperts, row_.tile_rows, row_.tile_tokens, problem_.sm_count, row_.threads);
        break;
    }
    add(Stage::kFinalize, 0, 1, problem_.num_tokens, on_gpu() ? kStageThreads : 0);
    return plan_;
  }

 private:
  bool on_gpu() const { return problem_.arch != Arch::kCpu; }

  void add(Stage stage, int tile_rows, int tile_tokens, int64_t grid, int threads) {
    const bool pdl = on_gpu() && plan_.num_launches > 0;
    plan_.launches[plan_.num_launches++] = {stage, tile_rows, tile_tokens, grid, threads, 1, pdl};
  }

  void add_gemm(Stage stage, int weight_rows) {
    const int64_t tiles = max_tiles(problem_.num_tokens, row_.tile_tokens, weight_rows, row_.tile_rows);
    const int64_t grid = on_gpu() ? std::min<int64_t>(tiles, problem_.sm_count) : tiles;
    add(stage, row_.tile_rows, row_.tile_tokens, grid, row_.threads);
  }

  void add_gemms() {
    add_gemm(Stage::kFc1, kFc1Rows);
    add_gemm(Stage::kFc2, kFc2Rows);
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

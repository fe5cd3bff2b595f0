#include "kernels/cpu/config.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/schedule.h"
#include "kernels/cpu/stages.h"

namespace cake_moe::cpu {

void fc1_stage(const Call& call, const Launch& launch) {
  constexpr int64_t kTileWeightBytes = int64_t{kTileRows} * kFc1RowBytes;
  constexpr int64_t kTileScaleBytes = int64_t{kTileRows} * kFc1Groups;
  const MoeParams& p = call.params;
  const int32_t* row_route = call.section<int32_t>(Section::kRowRoute);
  const uint8_t* xq = call.section<uint8_t>(Section::kXq);
  const uint8_t* xs = call.section<uint8_t>(Section::kXs);
  uint8_t* hq = call.section<uint8_t>(Section::kHq);
  uint8_t* hs = call.section<uint8_t>(Section::kHs);

  const Schedule schedule(call.section<int32_t>(Section::kExpertOffsets), launch.tile_tokens, kFc1Tiles);
  for_each_unit(call.pool, schedule.size(), kFc1Draw, [&](int64_t index) {
    const WorkUnit unit = schedule[index];
    const int64_t weight_tile = int64_t{unit.expert} * kFc1Tiles + unit.weight_tile;
    const int64_t first_row = unit.first_row;
    Fc1Tile tile;
    tile.weights = p.fc1_weights + weight_tile * kTileWeightBytes;
    tile.scales = p.fc1_scales + weight_tile * kTileScaleBytes;
    tile.alpha = p.fc1_alpha[unit.expert];
    tile.beta = p.beta[unit.expert];
    tile.linear_beta = p.linear_beta[unit.expert];
    tile.encode = p.hidden_encode[unit.expert];
    tile.rows = unit.rows;
    tile.row_route = row_route + first_row;
    tile.xq = xq;
    tile.xs = xs;
    tile.hq = hq + first_row * kFc2RowBytes + unit.weight_tile * (kTileFeatures / 2);
    tile.hs = hs + first_row * kFc2Groups + unit.weight_tile * (kTileFeatures / kGroup);
    call.kernels.fc1(tile);
  });
}

}  // namespace cake_moe::cpu

#include "kernels/cpu/config.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/schedule.h"
#include "kernels/cpu/stages.h"

namespace cake_moe::cpu {

void fc2_stage(const Call& call, const Launch& launch) {
  constexpr int64_t kTileWeightBytes = int64_t{kTileRows} * kFc2RowBytes;
  constexpr int64_t kTileScaleBytes = int64_t{kTileRows} * kFc2Groups;
  const MoeParams& p = call.params;
  const uint8_t* hq = call.section<uint8_t>(Section::kHq);
  const uint8_t* hs = call.section<uint8_t>(Section::kHs);
  uint16_t* y = call.section<uint16_t>(Section::kY);

  const Schedule schedule(call.section<int32_t>(Section::kExpertOffsets), launch.tile_tokens, kFc2Tiles);
  for_each_unit(call.pool, schedule.size(), kFc2Draw, [&](int64_t index) {
    const WorkUnit unit = schedule[index];
    const int64_t weight_tile = int64_t{unit.expert} * kFc2Tiles + unit.weight_tile;
    const int64_t first_row = unit.first_row;
    Fc2Tile tile;
    tile.weights = p.fc2_weights + weight_tile * kTileWeightBytes;
    tile.scales = p.fc2_scales + weight_tile * kTileScaleBytes;
    tile.alpha = p.fc2_alpha[unit.expert];
    tile.rows = unit.rows;
    tile.hq = hq + first_row * kFc2RowBytes;
    tile.hs = hs + first_row * kFc2Groups;
    tile.y = y + first_row * kHidden + unit.weight_tile * kTileRows;
    call.kernels.fc2(tile);
  });
}

}  // namespace cake_moe::cpu

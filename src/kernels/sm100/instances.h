// Token tiles that the expert kernel is instantiated for.
#pragma once

#include "kernels/common/instances.h"

namespace cake_moe::sm100 {

using TokenTiles = TokenTileList<8, 16, 32, 64, 96, 128, 192>;

}  // namespace cake_moe::sm100

// Token tiles that FC1 and FC2 are instantiated for.
#pragma once

#include "kernels/common/instances.h"

namespace cake_moe::sm90 {

using TokenTiles = TokenTileList<8, 16, 24, 32, 48, 64, 80, 96, 112, 128>;

}  // namespace cake_moe::sm90

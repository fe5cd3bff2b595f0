// Tensor maps for the tensor copy engine, encoded on the host for one launch.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace cake_moe {

// A byte matrix [rows, row_bytes] read in boxes of [box_rows, box_bytes], box_bytes = 128 or 64, that land in shared
// memory in the swizzle of that width. The base is 16-byte aligned, row_bytes a multiple of 16. nullptr or an error
// text.
const char* encode_byte_map(CUtensorMap* map, const uint8_t* base, int64_t row_bytes, int64_t rows, int box_bytes,
                            int box_rows);

}  // namespace cake_moe

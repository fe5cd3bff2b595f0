#pragma once

#include <cstdint>

namespace cake_moe {

// x bf16 [rows, cols] with cols a multiple of 16, 16-byte aligned; encode float32, 1 element; packed uint8
// [rows, cols / 2], 8-byte aligned; scales e4m3 [rows, cols / 16], linear. All on the current device; `stream` is a
// cudaStream_t. Returns nullptr, or the text of the launch's error.
const char* quantize_cuda(const uint16_t* x, int64_t rows, int64_t cols, const float* encode, uint8_t* packed,
                          uint8_t* scales, int sm_count, void* stream);

}  // namespace cake_moe

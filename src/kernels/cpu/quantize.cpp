#include <algorithm>

#include "kernels/cpu/config.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/stages.h"

namespace cake_moe::cpu {
namespace {

// All three arrays are contiguous, so rows do not matter.
void quantize_blocks(const Kernels& kernels, const ThreadPool& pool, const uint16_t* x, int64_t blocks, float encode,
                     uint8_t* packed, uint8_t* scales) {
  const int64_t units = (blocks + kQuantizeBlocks - 1) / kQuantizeBlocks;
  for_each_unit(pool, units, kQuantizeDraw, [&](int64_t unit) {
    const int64_t first = unit * kQuantizeBlocks;
    const int64_t count = std::min<int64_t>(kQuantizeBlocks, blocks - first);
    kernels.quantize(x + first * kGroup, count, encode, packed + first * (kGroup / 2), scales + first);
  });
}

}  // namespace

void quantize(const uint16_t* x, int64_t rows, int64_t cols, float encode, uint8_t* packed, uint8_t* scales,
              const ThreadPool& pool) {
  quantize_blocks(kernels(selected_isa()), pool, x, rows * (cols / kGroup), encode, packed, scales);
}

void quantize_stage(const Call& call, const Launch&) {
  quantize_blocks(call.kernels, call.pool, call.params.input, int64_t{call.params.num_tokens} * kFc1Groups,
                  *call.params.input_encode, call.section<uint8_t>(Section::kXq), call.section<uint8_t>(Section::kXs));
}

}  // namespace cake_moe::cpu

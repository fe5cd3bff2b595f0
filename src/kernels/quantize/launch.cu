#include "kernels/quantize/launch.h"

#include <algorithm>

#include "kernels/common/launch.h"
#include "kernels/quantize/kernel.cuh"

namespace cake_moe {

const char* quantize_cuda(const uint16_t* x, int64_t rows, int64_t cols, const float* encode, uint8_t* packed,
                          uint8_t* scales, int sm_count, void* stream) {
  using namespace quantize;
  const int64_t blocks = rows * (cols / kGroup);
  if (blocks == 0) return nullptr;
  const int64_t ctas = std::min<int64_t>((blocks + kThreads - 1) / kThreads, int64_t{sm_count} * kCtasPerSm);
  const LaunchShape shape = {.grid = static_cast<int>(ctas), .threads = kThreads};
  return launch(cake_moe_quantize, shape, static_cast<cudaStream_t>(stream), reinterpret_cast<const uint4*>(x), blocks,
                encode, reinterpret_cast<uint2*>(packed), scales);
}

}  // namespace cake_moe

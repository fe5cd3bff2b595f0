#include <algorithm>

#include "kernels/cpu/config.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/stages.h"
#include "numerics/fp32.h"

namespace cake_moe::cpu {
namespace {

constexpr uint16_t kBf16Nan = 0x7FFF;

float route_weight(const MoeParams& params, int64_t route) {
  return params.route_weights_are_float ? static_cast<const float*>(params.route_weights)[route]
                                        : bf16_to_float(static_cast<const uint16_t*>(params.route_weights)[route]);
}

}  // namespace

void finalize_stage(const Call& call, const Launch&) {
  const MoeParams& p = call.params;
  const int32_t* route_row = call.section<int32_t>(Section::kRouteRow);
  const uint16_t* y = call.section<uint16_t>(Section::kY);

  for_each_unit(call.pool, p.num_tokens, kFinalizeDraw, [&](int64_t token) {
    uint16_t* output = p.output + token * kHidden;
    float weights[kTopK];
    const uint16_t* rows[kTopK];
    int count = 0;
    for (int slot = 0; slot < kTopK; ++slot) {
      const int64_t route = token * kTopK + slot;
      const int32_t row = route_row[route];
      if (row == kInvalidRoute) {
        std::fill_n(output, kHidden, kBf16Nan);
        return;
      }
      if (row == kNoRoute) continue;
      weights[count] = route_weight(p, route);
      rows[count++] = y + int64_t{row} * kHidden;
    }
    call.kernels.finalize(weights, rows, count, output);
  });
}

}  // namespace cake_moe::cpu

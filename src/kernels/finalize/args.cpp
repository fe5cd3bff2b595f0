#include "kernels/finalize/args.h"

namespace cake_moe::finalize {

Args args_of(const MoeParams& params, const Plan& plan) {
  const auto section = [&](Section name) { return params.workspace + plan.workspace[name].offset; };
  return {
      .route_row = reinterpret_cast<const int32_t*>(section(Section::kRouteRow)),
      .route_weights = params.route_weights,
      .weights_are_float = params.route_weights_are_float,
      .y = reinterpret_cast<const uint4*>(section(Section::kY)),
      .output = reinterpret_cast<uint4*>(params.output),
  };
}

}  // namespace cake_moe::finalize

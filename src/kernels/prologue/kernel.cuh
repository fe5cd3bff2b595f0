// Quantise the input and route, side by side in one launch.
#pragma once

#include <cstdint>

#include "kernels/prologue/quantize.cuh"
#include "kernels/route/kernel.cuh"

namespace cake_moe::prologue {

union Shared {
  route::Shared<kThreads> route;
  uint8_t images[kWarps][kItemImageBytes];
};

__global__ void __launch_bounds__(kThreads)
    cake_moe_prologue(const route::Args route_args, const QuantizeArgs args, int64_t items, int route_ctas) {
  extern __shared__ __align__(16) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  ptx::grid_dependency_wait();
  ptx::grid_launch_dependents();
  if (blockIdx.x < route_ctas) {
    route::route_tokens(route_args, shared.route);
    return;
  }
  const int warp = threadIdx.x / 32;
  quantize_items(args, items, int64_t{blockIdx.x - route_ctas} * kWarps + warp,
                 int64_t{gridDim.x - route_ctas} * kWarps, shared.images[warp]);
}

}  // namespace cake_moe::prologue

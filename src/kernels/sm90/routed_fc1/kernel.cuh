// Quantise, route and FC1 in one cooperative launch, for calls whose launches count: one CTA routes while the others
// quantise, a grid barrier, then FC1.
#pragma once

#include <cooperative_groups.h>

#include "kernels/prologue/quantize.cuh"
#include "kernels/route/kernel.cuh"
#include "kernels/sm90/fc1/kernel.cuh"

namespace cake_moe::sm90::routed_fc1 {

template <typename C>
union Shared {
  fc1::Shared<C> fc1;
  route::Shared<C::kThreads> route;
  uint8_t images[C::kThreads / 32][prologue::kItemImageBytes];
};

// FC2's grid starts behind the grid barrier, which every CTA has passed by then.
template <typename C>
__global__ void __launch_bounds__(C::kThreads, C::kCtasPerSm)
    cake_moe_sm90_routed_fc1(const route::Args route, const prologue::QuantizeArgs input, int items,
                             const fc1::Args args, const __grid_constant__ CUtensorMap weights) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared<C>& shared = *reinterpret_cast<Shared<C>*>(memory);
  static_assert(sizeof(Shared<C>) <= max_smem_bytes(C::kCtasPerSm));
  if (threadIdx.x == 0) ptx::prefetch_tensor_map(&weights);
  if (blockIdx.x == 0) {
    route::route_tokens(route, shared.route);
    __syncthreads();
  }
  constexpr int kWarps = C::kThreads / 32;
  const int ctas = gridDim.x, turn = ctas - 1 - static_cast<int>(blockIdx.x);  // the CTA that routes comes last
  const int warp = threadIdx.x / 32;
  prologue::quantize_items(input, items, turn * kWarps + warp, ctas * kWarps, shared.images[warp]);
  ptx::fence_async();  // shared memory that bulk copies are going to write
  cooperative_groups::this_grid().sync();
  ptx::grid_launch_dependents();
  fc1::init_barriers(shared.fc1);
  fc1::compute(args, weights, shared.fc1);
}

}  // namespace cake_moe::sm90::routed_fc1

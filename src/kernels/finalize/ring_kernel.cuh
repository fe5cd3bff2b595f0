// The finalise stage for many tokens, by persistent CTAs. Architecture-neutral.
#pragma once

#include "kernels/finalize/ring.cuh"

namespace cake_moe::finalize {

__global__ void __launch_bounds__(kRingThreads, 1) cake_moe_finalize_ring(const Args args, int num_tokens) {
  extern __shared__ __align__(128) uint8_t memory[];
  Ring& ring = *reinterpret_cast<Ring*>(memory);
  const TokensOfGrid tokens = {num_tokens};
  if (threadIdx.x == 0) ring.init(kTokenThreads);
  __syncthreads();
  if (threadIdx.x >= kTokenThreads) {
    ptx::grid_dependency_wait();
    fill_ring(args, ring, tokens);
  } else {
    drain_ring(args, ring, tokens);
  }
}

}  // namespace cake_moe::finalize

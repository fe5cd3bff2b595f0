// The finalise stage for many tokens: persistent CTAs take whole tokens; rows arrive by bulk copies.
// Architecture-neutral.
//
//   last warp  --- arrived[slot] ---->  all others   (rows of a batch, their numbers and weights)
//   last warp  <--- consumed[slot] ---  all others   (one arrival a warp)
#pragma once

#include "kernels/finalize/sum.cuh"
#include "kernels/ptx/copy.cuh"
#include "kernels/ptx/sync.cuh"

namespace cake_moe::finalize {

struct Ring {
  struct Slot {
    alignas(128) uint4 values[kBatch][kTokenThreads];
    int32_t rows[kBatch];
    float weights[kBatch];
  };
  Slot slots[kRingSlots];
  uint64_t arrived[kRingSlots];
  uint64_t consumed[kRingSlots];
};

struct RingPosition {
  int slot = 0;
  uint32_t phase = 0;
  __device__ __forceinline__ void advance() {
    slot = (slot + 1) % kRingSlots;
    if (slot == 0) phase ^= 1;
  }
};

// By one warp, a lane a route of the batch.
__device__ __forceinline__ void fill_ring(const Args& args, Ring& ring, int num_tokens) {
  const uint64_t policy = ptx::policy_evict_first();
  const int lane = threadIdx.x % 32;
  RingPosition at;
  if (lane >= kBatch) return;
  for (int token = blockIdx.x; token < num_tokens; token += gridDim.x) {
    const int64_t first = int64_t{token} * kTopK + lane;
    int32_t rows[kBatches];
    float weights[kBatches];
#pragma unroll
    for (int b = 0; b < kBatches; ++b) {
      rows[b] = args.route_row[first + b * kBatch];
      weights[b] = route_weight(args, first + b * kBatch);
    }
#pragma unroll
    for (int b = 0; b < kBatches; ++b) {
      Ring::Slot& slot = ring.slots[at.slot];
      ptx::mbarrier_wait(&ring.consumed[at.slot], at.phase ^ 1);
      slot.rows[lane] = rows[b];
      slot.weights[lane] = weights[b];
      ptx::mbarrier_arrive_expect(&ring.arrived[at.slot], rows[b] >= 0 ? kRowBytes : 0);
      if (rows[b] >= 0) {
        ptx::bulk_copy(slot.values[lane], args.y + int64_t{rows[b]} * kTokenThreads, kRowBytes, &ring.arrived[at.slot],
                       policy);
      }
      at.advance();
    }
  }
}

__device__ __forceinline__ void drain_ring(const Args& args, Ring& ring, int num_tokens) {
  RingPosition at;
  for (int token = blockIdx.x; token < num_tokens; token += gridDim.x) {
    Sum sum;
#pragma unroll
    for (int b = 0; b < kBatches; ++b) {
      const Ring::Slot& slot = ring.slots[at.slot];
      ptx::mbarrier_wait(&ring.arrived[at.slot], at.phase);
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        sum.invalid |= slot.rows[k] == kInvalidRoute;
        if (slot.rows[k] >= 0) sum.add(slot.weights[k], slot.values[k][threadIdx.x]);
      }
      ptx::fence_async_shared();  // these reads before the copies that refill the slot
      __syncwarp();
      if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&ring.consumed[at.slot]);
      at.advance();
    }
    __stcs(&args.output[int64_t{token} * kTokenThreads + threadIdx.x], sum.result());
  }
}

__global__ void __launch_bounds__(kRingThreads, 1) cake_moe_finalize_ring(const Args args, int num_tokens) {
  extern __shared__ __align__(128) uint8_t memory[];
  Ring& ring = *reinterpret_cast<Ring*>(memory);
  if (threadIdx.x == 0) {
    for (int slot = 0; slot < kRingSlots; ++slot) {
      ptx::mbarrier_init(&ring.arrived[slot], kBatch);
      ptx::mbarrier_init(&ring.consumed[slot], kTokenThreads / 32);
    }
    ptx::mbarrier_init_fence();
  }
  __syncthreads();
  if (threadIdx.x >= kTokenThreads) {
    ptx::grid_dependency_wait();
    fill_ring(args, ring, num_tokens);
  } else {
    drain_ring(args, ring, num_tokens);
  }
}

}  // namespace cake_moe::finalize

// The finalise stage for many tokens: a CTA takes whole tokens; rows arrive by bulk copies.
// Architecture-neutral.
//
//   one warp  --- arrived[slot] ---->  kTokenThreads / kChunks others   (rows of a batch, their numbers and weights)
//   one warp  <--- consumed[slot] ---  the others                       (one arrival a warp)
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

  // By one thread.
  __device__ __forceinline__ void init(int threads) {
    for (int slot = 0; slot < kRingSlots; ++slot) {
      ptx::mbarrier_init(&arrived[slot], kBatch);
      ptx::mbarrier_init(&consumed[slot], threads / 32);
    }
    ptx::mbarrier_init_fence();
  }
};

// Which tokens a CTA sums: those of its index among the grid's CTAs, or among some of them.
struct TokensOfGrid {
  int count;
  __device__ __forceinline__ unsigned first() const { return blockIdx.x; }
  __device__ __forceinline__ unsigned stride() const { return gridDim.x; }
};
struct TokensOfPart {
  unsigned index, parts;
  int count;
  __device__ __forceinline__ unsigned first() const { return index; }
  __device__ __forceinline__ unsigned stride() const { return parts; }
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
template <typename Tokens>
__device__ __forceinline__ void fill_ring(const Args& args, Ring& ring, const Tokens& tokens) {
  const uint64_t policy = ptx::policy_evict_first();
  const int lane = threadIdx.x % 32;
  RingPosition at;
  if (lane >= kBatch) return;
  for (int token = tokens.first(); token < tokens.count; token += tokens.stride()) {
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

// By kTokenThreads / kChunks threads.
template <int kChunks = 1, typename Tokens>
__device__ __forceinline__ void drain_ring(const Args& args, Ring& ring, const Tokens& tokens) {
  constexpr int kThreads = kTokenThreads / kChunks;
  RingPosition at;
  for (int token = tokens.first(); token < tokens.count; token += tokens.stride()) {
    Sum sums[kChunks];
#pragma unroll
    for (int b = 0; b < kBatches; ++b) {
      const Ring::Slot& slot = ring.slots[at.slot];
      ptx::mbarrier_wait(&ring.arrived[at.slot], at.phase);
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
#pragma unroll
        for (int c = 0; c < kChunks; ++c) {
          sums[c].invalid |= slot.rows[k] == kInvalidRoute;
          if (slot.rows[k] >= 0) sums[c].add(slot.weights[k], slot.values[k][c * kThreads + threadIdx.x]);
        }
      }
      ptx::fence_async_shared();  // these reads before the copies that refill the slot
      __syncwarp();
      if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&ring.consumed[at.slot]);
      at.advance();
    }
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      __stcs(&args.output[int64_t{token} * kTokenThreads + c * kThreads + threadIdx.x], sums[c].result());
    }
  }
}

}  // namespace cake_moe::finalize

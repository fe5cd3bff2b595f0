// FC2's last step: the finalise stage, which may begin when every CTA has stored its last rows of y.
//
// CTAs need not all be resident at once, so a CTA waits for the others only where it sees that each of them has
// started: then all of them run, whatever else the GPU does. Where some have not, it leaves, and they find its SM free;
// those that start last see that all have.
#pragma once

#include <algorithm>

#include "kernels/finalize/ring.cuh"
#include "kernels/finalize/warp.cuh"
#include "kernels/ptx/sync.cuh"
#include "kernels/sm90/fc2/mainloop.cuh"

namespace cake_moe::sm90::fc2 {

// A CTA's shared memory. Once no unit is left the ring of the finalise stage takes the place of tokens and slots.
template <typename C>
constexpr size_t smem_bytes =
    C::kWide ? std::max(sizeof(Shared<C>), C::kHeaderBytes + sizeof(finalize::Ring)) : sizeof(Shared<C>);

// By one thread, after the CTA's last store. No parts: the CTA leaves.
__device__ __forceinline__ Part await_all(Progress* progress) {
  const int ctas = gridDim.x;
  const bool wait = ptx::load_acquire(&progress->started) == ctas;
  const unsigned index = wait ? atomicAdd(&progress->joined, 1) : 0;
  ptx::add_release(&progress->finished, 1);
  if (!wait) return {};
  while (ptx::load_acquire(&progress->finished) != ctas) {
  }
  return {index,
          static_cast<unsigned>(ptx::load_acquire(&progress->joined))};  // each joined, if at all, before it finished
}

// By the consumers. Wide tiles sum whole tokens from a ring; where two CTAs share an SM there is no room for one.
template <typename C>
__device__ __forceinline__ void finish(const Args& args, Shared<C>& shared) {
  constexpr int kWarps = C::kConsumerThreads / 32, kDrainThreads = finalize::kTokenThreads / C::kFinalizeChunks;
  static_assert(!C::kWide || kDrainThreads + 32 <= C::kConsumerThreads);
  const int warp = threadIdx.x / 32;
  finalize::Ring& ring = reinterpret_cast<finalize::Ring&>(shared.tokens);
  if constexpr (C::kWide) ptx::fence_async();  // rows of y, and uses of shared memory, before the ring's copies
  ptx::named_barrier(1, C::kConsumerThreads);  // every warp has stored its last rows
  if (threadIdx.x == 0) {
    if constexpr (C::kWide) ring.init(kDrainThreads);
    shared.part = await_all(args.progress);
  }
  ptx::named_barrier(1, C::kConsumerThreads);
  const Part part = shared.part;
  if (part.count == 0) return;
  if constexpr (C::kWide) {
    const finalize::TokensOfPart tokens = {part.index, part.count, args.num_tokens};
    if (warp == kWarps - 1) {
      finalize::fill_ring(args.finalize, ring, tokens);
    } else if (threadIdx.x < kDrainThreads) {
      finalize::drain_ring<C::kFinalizeChunks>(args.finalize, ring, tokens);
    }
  } else {
    // Neighbouring parts go to different SMs.
    finalize::finalize_parts(args.finalize, args.num_tokens, warp * part.count + part.index, part.count * kWarps);
  }
}

}  // namespace cake_moe::sm90::fc2

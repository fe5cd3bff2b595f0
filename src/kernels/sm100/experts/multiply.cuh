// The MMA thread: scale factors into tensor memory, then the MMAs of a stage.
#pragma once

#include <cstdint>

#include "kernels/ptx/sync.cuh"
#include "kernels/ptx/tcgen05.cuh"
#include "kernels/sm100/experts/shared.cuh"

namespace cake_moe::sm100::experts {

template <typename C, typename G>
__device__ __forceinline__ void multiply_stage(const typename Shared<C>::Slot& slot, uint32_t tmem, uint32_t sums,
                                               uint32_t instruction, bool accumulate) {
  const uint64_t weight_scales = scale_descriptor(ptx::shared_address(slot.weight_scales));
  const uint64_t token_scales = scale_descriptor(ptx::shared_address(slot.token_scales));
  constexpr uint64_t kAtom = kScaleAtomBytes >> 4;
  const auto weight_column = [&](int step) { return tmem + C::kWeightScaleColumn + step * kScaleAtomColumns; };
  const auto token_column = [&](int atom) { return tmem + C::kTokenScaleColumn + atom * kScaleAtomColumns; };
#pragma unroll
  for (int step = 0; step < G::kSteps; ++step) {
    ptx::tmem_copy_scales(weight_column(step), weight_scales + step * kAtom);
  }
#pragma unroll
  for (int atom = 0; atom < G::kSteps * C::kScaleAtoms; ++atom) {
    ptx::tmem_copy_scales(token_column(atom), token_scales + atom * kAtom);
  }
  const uint64_t weights = operand_descriptor<G::kChunkBytes>(ptx::shared_address(slot.weights));
  const uint64_t tokens = operand_descriptor<G::kChunkBytes>(ptx::shared_address(slot.tokens));
#pragma unroll
  for (int step = 0; step < G::kSteps; ++step) {
    const int chunk = step / G::kChunkSteps, in_chunk = step % G::kChunkSteps * kMmaBytes;
    ptx::mma_nvfp4(sums, weights + ((chunk * kMmaRows * G::kChunkBytes + in_chunk) >> 4),
                   tokens + ((chunk * C::kTokens * G::kChunkBytes + in_chunk) >> 4), instruction, weight_column(step),
                   token_column(step * C::kScaleAtoms), accumulate || step > 0);
  }
}

template <typename C, typename G>
__device__ __forceinline__ void multiply_unit(Shared<C>& shared, RingPosition<C::kSlots>& at, uint32_t tmem,
                                              uint32_t sums, uint32_t instruction) {
  for (int stage = 0; stage < G::kStages; ++stage) {
    ptx::mbarrier_wait(&shared.stage_arrived[at.slot], at.phase);
    ptx::fence_async_shared();  // the tokens were written through the generic proxy
    multiply_stage<C, G>(shared.slots[at.slot], tmem, sums, instruction, stage > 0);
    ptx::tcgen05_commit(&shared.stage_consumed[at.slot]);
    at.advance();
  }
}

// By one elected thread of the MMA warp; the others only follow the items.
template <typename C>
__device__ __forceinline__ void multiply(Shared<C>& shared, uint32_t tmem) {
  const bool issues = threadIdx.x % 32 == 0;
  RingPosition<C::kSlots> at;
  RingPosition<C::kAccumulators> sums;
  for_each_item<C>(shared, [&](const Item& item) {
    if (issues) {
      ptx::mbarrier_wait(&shared.sums_stored[sums.slot], sums.phase ^ 1);
      ptx::tcgen05_fence_after();
      const uint32_t column = tmem + sums.slot * C::kTokens;
      const uint32_t instruction = nvfp4_instruction((item.rows + 7) / 8 * 8);
      if (item.kind == Kind::kFc1) {
        multiply_unit<C, Fc1>(shared, at, tmem, column, instruction);
      } else {
        multiply_unit<C, Fc2>(shared, at, tmem, column, instruction);
      }
      ptx::tcgen05_commit(&shared.sums_ready[sums.slot]);
    }
    __syncwarp();
    sums.advance();
  });
}

}  // namespace cake_moe::sm100::experts

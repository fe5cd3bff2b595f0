// Shared-memory barriers.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#parallel-synchronization-and-communication-instructions-mbarrier
#pragma once

#include <cstdint>

namespace cake_moe::ptx {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void mbarrier_init(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the async proxy and to the cluster.
__device__ __forceinline__ void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// One arrival, and `bytes` that bulk copies will add to this phase.
__device__ __forceinline__ void mbarrier_arrive_expect(uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void mbarrier_wait(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n\t"
      ".reg .pred done;\n"
      "again_%=:\n\t"
      "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n\t"
      "@!done bra again_%=;\n\t"
      "}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

}  // namespace cake_moe::ptx

// Fifth-generation tensor core: tensor memory, block-scaled MMA and the order of its asynchronous operations.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#tcgen05-instructions
#pragma once

#include <cstdint>

#include "kernels/ptx/mbarrier.cuh"

namespace cake_moe::ptx {

// Tensor memory: 128 lanes of 512 columns of 32 bits; an address is lane << 16 | column. `columns` is a power of two
// from 32 on. Called by one whole warp, which also frees.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#tcgen05-memory-alloc-manage-instructions
__device__ __forceinline__ void tmem_allocate(uint32_t* address, int columns) {
  asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(shared_address(address)),
               "r"(columns)
               : "memory");
}
__device__ __forceinline__ void tmem_relinquish() {
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void tmem_free(uint32_t address, int columns) {
  asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns) : "memory");
}

// Around any other synchronisation that orders tcgen05 operations of different threads.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#tcgen05-special-sync-operations-fence
__device__ __forceinline__ void tcgen05_fence_before() {
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}
__device__ __forceinline__ void tcgen05_fence_after() {
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

// An atom of 512 bytes of scale factors (128 rows by 4 groups) into four columns, in all four lane quadrants.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#tcgen05-data-movement-instructions-tcgen05-cp
__device__ __forceinline__ void tmem_copy_scales(uint32_t address, uint64_t descriptor) {
  asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(address), "l"(descriptor) : "memory");
}

// d (+)= a * b for 128 rows by the instruction's N by K = 64; e2m1 operands in shared memory, ue4m3 scales of 16
// elements in tensor memory, fp32 sums in tensor memory. Asynchronous; one thread issues.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#tcgen05-mma-instructions-mma
__device__ __forceinline__ void mma_nvfp4(uint32_t d, uint64_t a, uint64_t b, uint32_t instruction, uint32_t a_scales,
                                          uint32_t b_scales, bool accumulate) {
  asm volatile(
      "{\n\t"
      ".reg .pred add;\n\t"
      "setp.ne.u32 add, %6, 0;\n\t"
      "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X [%0], %1, %2, %3, [%4], [%5], add;\n\t"
      "}" ::"r"(d),
      "l"(a), "l"(b), "r"(instruction), "r"(a_scales), "r"(b_scales), "r"(static_cast<uint32_t>(accumulate))
      : "memory");
}

// One arrival once every earlier tcgen05 operation of this thread has completed.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#tcgen05-mma-instructions-commit
__device__ __forceinline__ void tcgen05_commit(uint64_t* barrier) {
  asm volatile(
      "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(shared_address(barrier))
      : "memory");
}

// Sixteen lanes by eight columns; a thread gets, as in an m16n8 fragment, lanes l / 4 (d[0], d[1]) and l / 4 + 8 (d[2],
// d[3]), columns 2 * (l % 4) and the next. A warp reaches the 32 lanes of its rank in its warpgroup.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#tcgen05-data-movement-instructions-tcgen05-ld
__device__ __forceinline__ void tmem_load_16x8(float (&d)[4], uint32_t address) {
  asm volatile("tcgen05.ld.sync.aligned.16x256b.x1.b32 {%0, %1, %2, %3}, [%4];"
               : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void tmem_load_wait() { asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }

}  // namespace cake_moe::ptx

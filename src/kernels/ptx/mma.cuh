// Warp-level MMA and its operand loads.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#warp-level-matrix-instructions
#pragma once

#include <cstdint>

namespace cake_moe::ptx {

// Four 8x8 fp16 matrices; lane 8 * i + j gives the address of row j of matrix i. Register i holds row lane / 4, columns
// 2 * (lane % 4) and the next, of matrix i.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&registers)[4], uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(shared)
               : "memory");
}

// d += a * b, m16n8k16, fp16 operands, fp32 sums.
__device__ __forceinline__ void mma_m16n8k16(float* d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace cake_moe::ptx

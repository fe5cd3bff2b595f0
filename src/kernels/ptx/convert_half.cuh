// e4m3 to half, float to bf16, table lookup of bytes.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-cvt
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

namespace cake_moe::ptx {

// Exact; 0x7F gives NaN. The low byte becomes the low half.
__device__ __forceinline__ __half2 cvt_f16x2_e4m3x2(uint16_t codes) {
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(codes));
  return reinterpret_cast<const __half2&>(halves);
}

// Two bf16, round to nearest even, NaN -> 0x7FFF. The first operand takes the high half.
__device__ __forceinline__ uint32_t cvt_bf16x2(float high, float low) {
  uint32_t halves;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(halves) : "f"(high), "f"(low));
  return halves;
}

// Four bytes of the eight in (high, low), one for each of the selector's low four nibbles: its low three bits choose a
// byte; with the nibble's top bit set, that byte's top bit is repeated eight times.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-prmt
__device__ __forceinline__ uint32_t prmt(uint32_t low, uint32_t high, uint32_t selector) {
  uint32_t bytes;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(selector));
  return bytes;
}

}  // namespace cake_moe::ptx

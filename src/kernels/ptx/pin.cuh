// Registers that the compiler must fill where the program says.
#pragma once

#include <cstdint>

namespace cake_moe::ptx {

// Keeps the compiler from moving writes of the register past this point, and from leaving them out.
__device__ __forceinline__ void pin(uint32_t& value) { asm volatile("" : "+r"(value)::"memory"); }
__device__ __forceinline__ void pin(float& value) { asm volatile("" : "+f"(value)::"memory"); }

}  // namespace cake_moe::ptx

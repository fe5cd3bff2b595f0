// C functions that cake_moe/ops.py calls with ctypes: they must work while a tracer intercepts every operator.
#include <exception>

#include "bindings/prepared.h"
#include "kernels/cpu/backend.h"

#define CAKE_MOE_EXPORT extern "C" __attribute__((visibility("default")))

// For finalizers of a storage, which have no tensor any more.
CAKE_MOE_EXPORT void cake_moe_forget_workspace(int32_t cuda_index, const void* data, int64_t bytes) {
  cake_moe::prepared::forget({{cuda_index}, data, bytes});
}

// Null where CAKE_MOE_CPU_ISA cannot be followed: no exception may reach ctypes. The operator _warmup raises the
// reason.
CAKE_MOE_EXPORT const char* cake_moe_cpu_isa() {
  try {
    return cake_moe::cpu::isa_name(cake_moe::cpu::selected_isa());
  } catch (const std::exception&) {
    return nullptr;
  }
}

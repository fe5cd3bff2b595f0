// The CPU backend: the same stages as the GPU backends, one function each, every intermediate in the workspace.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/common/params.h"
#include "plan/plan.h"

namespace cake_moe::cpu {

// How to use the caller's thread pool: run(body) calls body(worker) for every worker in 0..num_workers-1, possibly all
// from one thread, and returns when all have finished.
struct ThreadPool {
  int num_workers;
  std::function<void(const std::function<void(int worker)>& body)> run;
};

// Instruction set of the inner loops, chosen once from the processor, or by CAKE_MOE_CPU_ISA=portable|avx2|avx512.
// Results are bit-identical for all of them.
enum class Isa : uint8_t { kPortable, kAvx2, kAvx512 };
Isa selected_isa();
const char* isa_name(Isa isa);
bool isa_supported(Isa isa);

// x bf16 [rows, cols], cols a multiple of 16 -> packed uint8 [rows, cols / 2], scales e4m3 [rows, cols / 16], linear.
void quantize(const uint16_t* x, int64_t rows, int64_t cols, float encode, uint8_t* packed, uint8_t* scales,
              const ThreadPool& pool);

// The whole operator. The plan must be for Arch::kCpu and params.num_tokens.
void fused_moe(const MoeParams& params, const Plan& plan, const ThreadPool& pool);

}  // namespace cake_moe::cpu

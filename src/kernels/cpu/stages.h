// The five stages of a call. Each reads and writes sections of the workspace (plan/workspace.h).
#pragma once

#include <cstdint>

#include "kernels/cpu/isa.h"

namespace cake_moe::cpu {

struct Call {
  const MoeParams& params;
  const Plan& plan;
  const ThreadPool& pool;
  const Kernels& kernels;

  template <class T>
  T* section(Section which) const {
    return reinterpret_cast<T*>(params.workspace + plan.workspace[which].offset);
  }
};

void quantize_stage(const Call& call, const Launch& launch);  // input -> xq, xs
void route_stage(const Call& call, const Launch& launch);     // expert ids -> expert_offsets, row_route, route_row
void fc1_stage(const Call& call, const Launch& launch);       // xq, xs -> hq, hs
void fc2_stage(const Call& call, const Launch& launch);       // hq, hs -> y
void finalize_stage(const Call& call, const Launch& launch);  // y -> output

}  // namespace cake_moe::cpu

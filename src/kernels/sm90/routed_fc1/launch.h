#pragma once

#include "kernels/common/params.h"
#include "plan/plan.h"

namespace cake_moe::sm90::routed_fc1 {

// Sets the kernel's attributes and loads it. nullptr or an error text, here and below.
const char* load();

// The input and its routes -> what the prologue and FC1 write. `stream` is a cudaStream_t.
const char* run(const MoeParams& params, const Plan& plan, const Launch& stage, void* stream);

}  // namespace cake_moe::sm90::routed_fc1

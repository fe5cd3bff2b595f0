#pragma once

#include "kernels/common/params.h"
#include "plan/plan.h"

namespace cake_moe::sm90::fc2 {

// Sets the attributes of every instance and loads it. nullptr or an error text, here and below.
const char* load();

// hq, hs and the token tiles of the plan's workspace -> y, output. `stream` is a cudaStream_t.
const char* run(const MoeParams& params, const Plan& plan, const Launch& stage, void* stream);

}  // namespace cake_moe::sm90::fc2

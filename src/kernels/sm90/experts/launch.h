#pragma once

#include "kernels/common/params.h"
#include "plan/plan.h"

namespace cake_moe::sm90::experts {

// Sets the kernel's attributes, loads it and makes sure that its CTAs can be resident together. nullptr or an error
// text, here and below.
const char* load();

// Everything but the finalise: fills every section of the plan's workspace from expert_offsets to y. `stream` is a
// cudaStream_t.
const char* run(const MoeParams& params, const Plan& plan, const Launch& stage, void* stream);

}  // namespace cake_moe::sm90::experts

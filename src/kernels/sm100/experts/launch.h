#pragma once

#include "kernels/common/params.h"
#include "plan/plan.h"

namespace cake_moe::sm100::experts {

// Sets the attributes of every instance on the current device. nullptr or an error text, here and below.
const char* load();

// `stage` is the plan's launch of FC1 and FC2 on `stream` (a cudaStream_t).
const char* run(const MoeParams& params, const Plan& plan, const Launch& stage, void* stream);

}  // namespace cake_moe::sm100::experts

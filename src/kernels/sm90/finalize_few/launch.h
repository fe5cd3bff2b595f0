#pragma once

#include "kernels/common/params.h"
#include "plan/plan.h"

namespace cake_moe::sm90::finalize_few {

// Loads the kernel. nullptr or an error text, here and below.
const char* load();

// y of the plan's workspace -> params.output, for up to kFewTokens. `stream` is a cudaStream_t.
const char* run(const MoeParams& params, const Plan& plan, const Launch& stage, void* stream);

}  // namespace cake_moe::sm90::finalize_few

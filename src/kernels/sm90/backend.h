// The sm_90a backend, chained by programmatic dependent launch: experts for few tokens; prologue (quantise
// and route), FC1, FC2 with finalise for many; the first two in one launch between.
#pragma once

#include "kernels/common/params.h"
#include "plan/plan.h"

namespace cake_moe::sm90 {

// Loads every kernel and sets its attributes on the current device, so that the first call may be captured. nullptr or
// an error text, here and below.
const char* load_kernels();

// One launch of the plan on `stream` (a cudaStream_t). No allocation, no synchronisation. The plan must be for
// Arch::kSm90a, params.num_tokens and the SM count of the current device; its launches in order are the operator.
const char* run_launch(const MoeParams& params, const Plan& plan, int index, void* stream);

}  // namespace cake_moe::sm90

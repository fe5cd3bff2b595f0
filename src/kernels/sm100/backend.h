// The sm_100a and sm_103a backend, chained by programmatic dependent launch: prologue (quantise and route), experts
// (FC1, SiTU, requantise, FC2), finalise; for few tokens the experts kernel needs no prologue.
#pragma once

#include "kernels/common/params.h"
#include "plan/plan.h"

namespace cake_moe::sm100 {

// Loads every kernel and sets its attributes on the current device, so that the first call may be captured. nullptr or
// an error text, here and below.
const char* load_kernels();

// One launch of the plan on `stream` (a cudaStream_t). No allocation, no synchronisation. The plan must be for
// Arch::kSm100a or kSm103a, params.num_tokens and the SM count of the current device; its launches in order are the
// operator.
const char* run_launch(const MoeParams& params, const Plan& plan, int index, void* stream);

}  // namespace cake_moe::sm100

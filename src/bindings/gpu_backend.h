// The GPU backends behind one door: which one runs is the plan's architecture. Errors are std::runtime_error that begin
// with the operator's name.
#pragma once

#include "bindings/argument.h"
#include "kernels/common/params.h"
#include "plan/plan.h"

namespace cake_moe::gpu {

// Loads every kernel of `arch` on the device, once: later calls return at once. Must not run during stream capture for
// the first time.
void load_kernels(const char* op, Arch arch, Place place);

// The plan's launches on torch's current stream. With CAKE_MOE_SYNC=1 waits after each, outside of stream capture, so
// that an error names its stage.
void fused_moe(const char* op, const MoeParams& params, const Plan& plan, Place place);

}  // namespace cake_moe::gpu

#pragma once

#include "kernels/common/params.h"
#include "kernels/sm90/fc1/args.h"
#include "plan/plan.h"

namespace cake_moe::sm90::fc1 {

// What the stage reads and writes, also where another kernel does its work.
Args args_of(const MoeParams& params, const Plan& plan);

// Sets the attributes of every instance and loads it. nullptr or an error text, here and below.
const char* load();

// x_half and the token tiles of the plan's workspace -> hq, hs. `stream` is a cudaStream_t.
const char* run(const MoeParams& params, const Plan& plan, const Launch& stage, void* stream);

}  // namespace cake_moe::sm90::fc1

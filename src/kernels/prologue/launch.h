#pragma once

#include "kernels/common/params.h"
#include "kernels/prologue/args.h"
#include "kernels/route/args.h"
#include "plan/plan.h"

namespace cake_moe::prologue {

// What the stages read and write, also where another kernel does their work; tile_tokens is the most rows of a token
// tile.
route::Args route_args_of(const MoeParams& params, const Plan& plan, int tile_tokens);
QuantizeArgs quantize_args_of(const MoeParams& params, const Plan& plan);

// Sets the kernel's attributes and loads it. nullptr or an error text, here and below.
const char* load();

// Quantises the input and routes. Fills expert_offsets, row_route, route_row, tiles, tile_count, xq, xs and x_half of
// the plan's workspace, and sets work_counter and progress to zero.
// `stream` is a cudaStream_t.
const char* run(const MoeParams& params, const Plan& plan, const Launch& stage, int tile_tokens, void* stream);

}  // namespace cake_moe::prologue

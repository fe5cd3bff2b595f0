// The shipped launch code as C functions: what tests/ptx drives in the interpreter.
#include <exception>
#include <string>

#include "kernels/common/params.h"
#include "kernels/quantize/launch.h"
#include "kernels/sm100/backend.h"
#include "kernels/sm90/backend.h"
#include "plan/plan.h"

#define CAKE_EXPORT extern "C" __attribute__((visibility("default")))

using cake_moe::Arch;
using cake_moe::MoeParams;

CAKE_EXPORT int cake_params_bytes() { return sizeof(MoeParams); }

// Launch `index` of the plan of compute capability 90, 100 or 103, as the operator makes it. nullptr or an error text,
// here and below.
CAKE_EXPORT const char* cake_launch(const MoeParams* params, int capability, int sm_count, int index) {
  static std::string error;
  try {
    const Arch arch = capability == 90 ? Arch::kSm90a : capability == 100 ? Arch::kSm100a : Arch::kSm103a;
    const cake_moe::Plan plan =
        cake_moe::make_plan({.num_tokens = params->num_tokens, .arch = arch, .sm_count = sm_count});
    const auto run = arch == Arch::kSm90a ? cake_moe::sm90::run_launch : cake_moe::sm100::run_launch;
    return run(*params, plan, index, nullptr);
  } catch (const std::exception& problem) {
    error = problem.what();
    return error.c_str();
  }
}

CAKE_EXPORT const char* cake_load(int capability) {
  return capability == 90 ? cake_moe::sm90::load_kernels() : cake_moe::sm100::load_kernels();
}

CAKE_EXPORT const char* cake_quantize(const uint16_t* x, int64_t rows, int64_t cols, const float* encode,
                                      uint8_t* packed, uint8_t* scales, int sm_count) {
  return cake_moe::quantize_cuda(x, rows, cols, encode, packed, scales, sm_count, nullptr);
}

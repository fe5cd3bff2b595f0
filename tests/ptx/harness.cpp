// The shipped launch code as C functions: what tests/ptx drives in the interpreter.
#include <exception>
#include <string>

#include "kernels/common/params.h"
#include "kernels/quantize/launch.h"
#include "kernels/sm90/backend.h"
#include "plan/plan.h"

#define CAKE_EXPORT extern "C" __attribute__((visibility("default")))

using cake_moe::MoeParams;

CAKE_EXPORT int cake_params_bytes() { return sizeof(MoeParams); }

// Launch `index` of the sm_90a plan, as the operator makes it. nullptr or an error text, here and below.
CAKE_EXPORT const char* cake_sm90_launch(const MoeParams* params, int sm_count, int index) {
  static std::string error;
  try {
    const cake_moe::Plan plan =
        cake_moe::make_plan({.num_tokens = params->num_tokens, .arch = cake_moe::Arch::kSm90a, .sm_count = sm_count});
    return cake_moe::sm90::run_launch(*params, plan, index, nullptr);
  } catch (const std::exception& problem) {
    error = problem.what();
    return error.c_str();
  }
}

CAKE_EXPORT const char* cake_sm90_load() { return cake_moe::sm90::load_kernels(); }

CAKE_EXPORT const char* cake_quantize(const uint16_t* x, int64_t rows, int64_t cols, const float* encode,
                                      uint8_t* packed, uint8_t* scales, int sm_count) {
  return cake_moe::quantize_cuda(x, rows, cols, encode, packed, scales, sm_count, nullptr);
}

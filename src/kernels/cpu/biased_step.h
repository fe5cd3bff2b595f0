// What the x86 instruction sets make of a token's activations: their byte products take one unsigned and one signed
// side.
#pragma once

#include <cstdint>

#include "kernels/cpu/config.h"

namespace cake_moe::cpu {
namespace {

// 128 elements as twice their value; elements 2i and 2i + 1 are even[i] and odd[i]. The weight codes carry kCodeBias.
struct alignas(64) BiasedStep {
  int8_t even[kStepBytes];
  int8_t odd[kStepBytes];
  int32_t start[kLanes];  // -kCodeBias * sum of a half-group: cancels the bias
  float scale[kLanes];    // decoded block scale of each half-group
};

}  // namespace
}  // namespace cake_moe::cpu

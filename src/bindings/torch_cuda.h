// What the bindings need of a GPU and of torch's CUDA build. Nothing here is touched for CPU tensors: one library
// serves CPU-only torch and machines without a driver.
#pragma once

#include <cstdint>
#include <string>

#include "bindings/argument.h"
#include "plan/problem.h"

namespace cake_moe::torch_cuda {

// Throws std::runtime_error where this build, the driver or the device's architecture cannot run kernels on `place`;
// the message, about `op`, names the architecture found and those with kernels.
Problem gpu_problem(const char* op, Place place, int num_tokens);

// torch's current stream of the device, a cudaStream_t.
void* current_stream(Place place);
bool is_capturing(void* stream);
// Waits for the stream; an error of its work raises std::runtime_error that begins with `what`.
void synchronize(void* stream, const std::string& what);
// Copies host bytes to the device in stream order; the source may be reused at once.
void upload(void* destination, const void* source, int64_t bytes, void* stream);

}  // namespace cake_moe::torch_cuda

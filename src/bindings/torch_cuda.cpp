#include "bindings/torch_cuda.h"

#include <stdexcept>
#include <string>

#if CAKE_WITH_CUDA
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include "build_config.h"
#include "kernels/common/built.h"
#include "kernels/common/device.h"
#endif

namespace cake_moe::torch_cuda {

#if CAKE_WITH_CUDA
namespace {

using CurrentStream = int32_t (*)(int32_t device_index, void** stream);

// A strong reference to libtorch_cuda would keep this library from loading under CPU-only torch.
CurrentStream find_current_stream() {
  void* library = dlopen("libtorch_cuda.so", RTLD_NOLOAD | RTLD_LAZY);
  void* symbol = library == nullptr ? nullptr : dlsym(library, "aoti_torch_get_current_cuda_stream");
  if (symbol == nullptr) throw std::runtime_error("cake_moe: CUDA tensors must come from a CUDA build of torch");
  return reinterpret_cast<CurrentStream>(symbol);
}

void check(cudaError_t status, const std::string& what) {
  if (status != cudaSuccess) throw std::runtime_error(what + ": " + cudaGetErrorString(status));
}

// Kernels are built for architecture-specific targets: only an exact match runs.
bool runs(Arch arch, const Device& device) { return device.arch + "a" == arch_name(arch); }

void require_driver(const char* op) {
  const std::string problem = driver_problem();
  if (!problem.empty()) throw std::runtime_error(std::string(op) + ": " + problem);
}

// The problem of no tokens.
Problem find_problem(const char* op, Place place) {
  require_driver(op);
  const Device device = read_device(place.cuda_index);
  for (const Arch arch : kGpuArchs) {
    if (is_built(arch) && runs(arch, device)) return {0, arch, device.sm_count};
  }
  throw std::runtime_error(message(op, "device", "of an architecture with kernels (" CAKE_MOE_CUDA_ARCHS ")",
                                   device.arch + " at " + to_string(place)));
}

}  // namespace

// Every call asks; a device keeps its properties while the process lives.
Problem gpu_problem(const char* op, Place place, int num_tokens) {
  thread_local int32_t known_device = -1;
  thread_local Problem known{};
  if (known_device != place.cuda_index) {
    known = find_problem(op, place);
    known_device = place.cuda_index;
  }
  Problem problem = known;
  problem.num_tokens = num_tokens;
  return problem;
}

void* current_stream(Place place) {
  static const CurrentStream query = find_current_stream();
  void* stream = nullptr;
  if (query(place.cuda_index, &stream) != 0) throw std::runtime_error("cake_moe: torch gave no current CUDA stream");
  return stream;
}

bool is_capturing(void* stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

void synchronize(void* stream, const std::string& what) {
  check(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)), what);
}

void upload(void* destination, const void* source, int64_t bytes, void* stream) {
  check(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyHostToDevice, static_cast<cudaStream_t>(stream)),
        "cudaMemcpyAsync");
}

#else

namespace {

[[noreturn]] void refuse_build(const char* op, Place place) {
  throw std::runtime_error(message(op, "device", "cpu (this build holds no CUDA kernels)", to_string(place)));
}

}  // namespace

Problem gpu_problem(const char* op, Place place, int) { refuse_build(op, place); }
void* current_stream(Place place) { refuse_build("cake_moe", place); }
bool is_capturing(void*) { return false; }
void synchronize(void*, const std::string&) {}
void upload(void*, const void*, int64_t, void*) {}

#endif

}  // namespace cake_moe::torch_cuda

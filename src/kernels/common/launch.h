// One way to launch a kernel: attributes set, status returned as text.
#pragma once

#include <cuda_runtime_api.h>

#include <tuple>

namespace cake_moe {

struct LaunchShape {
  int grid;
  int threads;
  int smem_bytes = 0;
  bool pdl = false;          // programmatic dependent launch: may start before its predecessor on the stream has ended
  int cluster = 1;           // CTAs a cluster; divides the grid
  bool cooperative = false;  // all CTAs are resident together, or the launch fails
};

// Returns nullptr, or the CUDA error's text. Only reports errors of this launch: an earlier asynchronous error of
// another kernel is left for its owner. arguments: the address of each of the kernel's parameters.
const char* launch_function(const void* kernel, const LaunchShape& shape, cudaStream_t stream, void** arguments);

template <typename... Params, typename... Args>
const char* launch(void (*kernel)(Params...), const LaunchShape& shape, cudaStream_t stream, const Args&... args) {
  std::tuple<Params...> values(args...);
  return std::apply(
      [&](Params&... params) {
        void* arguments[] = {const_cast<void*>(static_cast<const void*>(&params))...};
        return launch_function(reinterpret_cast<const void*>(kernel), shape, stream, arguments);
      },
      values);
}

}  // namespace cake_moe

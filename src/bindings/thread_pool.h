// The CPU backend's view of torch's intra-op threads.
#pragma once

#include <torch/csrc/stable/ops.h>

#include "kernels/cpu/backend.h"

namespace cake_moe {

// Inside a parallel region parallel_for hands all indices to one caller: every worker still gets its turn.
inline cpu::ThreadPool torch_threads() {
  const int num_workers = static_cast<int>(torch::stable::get_num_threads());
  return {num_workers, [num_workers](const std::function<void(int)>& body) {
            torch::stable::parallel_for(0, num_workers, 1, [&](int64_t begin, int64_t end) {
              for (int64_t worker = begin; worker < end; ++worker) body(static_cast<int>(worker));
            });
          }};
}

}  // namespace cake_moe

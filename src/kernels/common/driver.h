// Functions of the CUDA driver, found through the runtime, so that nothing links the driver's library.
#pragma once

#include <cuda.h>

#include "kernels/common/device.h"

namespace cake_moe {

// The function of that name as it was in a CUDA version such as 12000; nullptr where the driver has none.
void* find_driver_function(const char* name, unsigned version);

// call(), once more where the thread had no context: the runtime would bind one by itself.
template <typename Call>
CUresult call_driver(const Call& call) {
  const CUresult status = call();
  return status == CUDA_ERROR_INVALID_CONTEXT && bind_context() ? call() : status;
}

}  // namespace cake_moe

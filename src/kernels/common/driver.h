// Functions of the CUDA driver, found through the runtime, so that nothing links the driver's library.
#pragma once

namespace cake_moe {

// The function of that name as it was in a CUDA version such as 12000; nullptr where the driver has none.
void* find_driver_function(const char* name, unsigned version);

}  // namespace cake_moe

// What a launcher needs to know of a GPU.
#pragma once

#include <string>

namespace cake_moe {

struct Device {
  std::string arch;  // its compute capability, as "sm_90"
  int sm_count;
};

// Creates no context. Throws std::runtime_error with the driver's words if the device cannot be read.
Device read_device(int index);

// Makes the context of the runtime's current device the thread's: one that has not used the runtime yet has none. False
// where that fails.
bool bind_context();

// Empty where the installed driver can run this library's CUDA runtime, else one sentence with both versions.
std::string driver_problem();

}  // namespace cake_moe

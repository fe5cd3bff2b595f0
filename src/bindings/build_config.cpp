// What this library is: for Python to check (through ctypes), and for ci/audit_wheel, which searches the file for it.
#include "build_config.h"

extern "C" __attribute__((visibility("default"))) const char* cake_moe_build_config() { return CAKE_MOE_BUILD_JSON; }

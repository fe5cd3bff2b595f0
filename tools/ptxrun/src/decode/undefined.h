// Bytes that nobody defines.
#pragma once

#include "decode/program.h"

namespace ptxrun {

// Compilers put registers that are never written where a byte does not matter: prmt packs them, a narrow store leaves
// them out again. This takes the check of such registers from the prmt and puts it on the instructions that would use
// an undefined byte.
void settle_undefined_bytes(Kernel& kernel);

}  // namespace ptxrun

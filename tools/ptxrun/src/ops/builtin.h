// Functions that the CUDA runtime brings: vprintf, __assertfail.
#pragma once

#include <string>
#include <vector>

#include "decode/decoder.h"

namespace ptxrun {

// False if the name is none of them.
bool decode_builtin(Decoder& d, Instr& out, const std::string& name, const std::vector<ast::Operand>* arguments);

}  // namespace ptxrun

// Which targets have an instruction family.
#pragma once

#include <string>
#include <string_view>

namespace ptxrun {

// Why a module for the target (as .target names it: sm_90a) cannot have the instruction; empty if it can. Knows the
// families that exist on some architectures only; spellings inside them are the assembler's matter.
std::string refused_by_target(std::string_view target, std::string_view opcode);

}  // namespace ptxrun

// How an instruction family makes itself known: prefix of the opcode -> decode function.
#pragma once

#include <initializer_list>
#include <string_view>

#include "decode/instruction.h"

namespace ptxrun {

class Decoder;

// Fills in `out` (handler, operands through the decoder, modifiers, class). Calls decoder.unknown() on a spelling that
// is not modelled; every modifier must have been taken from decoder.modifiers().
using DecodeFunction = void (*)(Decoder& decoder, Instr& out);

// The prefix with the most modifiers wins: "cp.async.bulk" before "cp". A prefix matches whole dot-separated parts.
struct Family {
  Family(std::string_view prefix, DecodeFunction decode);
  Family(std::initializer_list<std::string_view> prefixes, DecodeFunction decode);
};

// nullptr if no family takes the opcode.
DecodeFunction find_family(std::string_view opcode);

}  // namespace ptxrun

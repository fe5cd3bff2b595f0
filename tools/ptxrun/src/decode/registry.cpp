#include "decode/registry.h"

#include <map>
#include <stdexcept>
#include <string>

namespace ptxrun {
namespace {

std::map<std::string, DecodeFunction, std::less<>>& families() {
  static std::map<std::string, DecodeFunction, std::less<>> map;
  return map;
}

}  // namespace

const char* const kOpClassNames[kOpClasses] = {"alu",  "fp",      "convert", "memory", "atomic", "control",
                                               "warp", "barrier", "copy",    "mma",    "tmem",   "special"};

Family::Family(std::string_view prefix, DecodeFunction decode) {
  if (!families().emplace(prefix, decode).second) throw std::logic_error("two families for " + std::string(prefix));
}

Family::Family(std::initializer_list<std::string_view> prefixes, DecodeFunction decode) {
  for (const std::string_view prefix : prefixes) Family(prefix, decode);
}

DecodeFunction find_family(std::string_view opcode) {
  while (true) {
    const auto found = families().find(opcode);
    if (found != families().end()) return found->second;
    const size_t dot = opcode.rfind('.');
    if (dot == std::string_view::npos) return nullptr;
    opcode = opcode.substr(0, dot);
  }
}

}  // namespace ptxrun

#pragma once

#include <cstdint>
#include <string>

namespace ptxrun::ops {

inline std::string hex(uint64_t value) {
  static const char digits[] = "0123456789abcdef";
  std::string text;
  do {
    text.insert(text.begin(), digits[value % 16]);
    value /= 16;
  } while (value);
  return "0x" + text;
}

}  // namespace ptxrun::ops

// What is wrong with a descriptor or a set of operands: a stable name for findings, and the numbers.
#pragma once

#include <string>
#include <vector>

namespace ptxrun::model {

struct Problem {
  const char* name;  // "smem_descriptor.version" and the like
  std::string detail;
};

using Problems = std::vector<Problem>;

}  // namespace ptxrun::model

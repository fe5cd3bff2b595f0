#pragma once

#include <memory>

#include "exec/machine.h"

namespace ptxrun {

// The checker of a machine: a check::Checks of that level.
std::unique_ptr<Checker> make_checker(Machine& machine, CheckLevel level);

}  // namespace ptxrun

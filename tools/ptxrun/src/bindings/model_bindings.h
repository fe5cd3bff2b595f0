#pragma once

#include <pybind11/pybind11.h>

namespace ptxrun {

// Adds the submodule `model`.
void bind_model(pybind11::module_& parent);

}  // namespace ptxrun

// cake_moe._C: the plan, the workspace layout, build facts and the scalar formulas, for Python code and tests. No
// torch.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <stdexcept>
#include <string>

#include "build_config.h"
#include "kernels/common/built.h"
#include "numerics/layout.h"
#include "numerics/nvfp4.h"
#include "numerics/situ.h"
#include "plan/plan.h"

namespace py = pybind11;

namespace cake_moe {
namespace {

Arch parse_arch(const std::string& name) {
  for (const Arch arch : kAllArchs) {
    if (name == arch_name(arch)) return arch;
  }
  throw std::invalid_argument("plan: arch must be cpu, sm_90a, sm_100a or sm_103a, got " + name);
}

py::dict plan_dict(int num_tokens, const std::string& arch, int sm_count) {
  const Plan plan = make_plan({num_tokens, parse_arch(arch), sm_count});
  py::list launches;
  for (int i = 0; i < plan.num_launches; ++i) {
    const Launch& launch = plan.launches[i];
    py::dict entry;
    entry["stage"] = stage_name(launch.stage);
    entry["tile_rows"] = launch.tile_rows;
    entry["tile_tokens"] = launch.tile_tokens;
    entry["grid"] = launch.grid;
    entry["threads"] = launch.threads;
    entry["cluster"] = launch.cluster;
    entry["pdl"] = launch.pdl;
    launches.append(entry);
  }
  py::dict workspace;
  for (int i = 0; i < kNumSections; ++i) {
    const Extent& extent = plan.workspace.sections[i];
    workspace[section_name(static_cast<Section>(i))] = py::make_tuple(extent.offset, extent.bytes);
  }
  py::dict result;
  result["path"] = plan.path;
  result["why"] = plan.why;
  result["launches"] = launches;
  result["fc2_pool"] = plan.fc2_pool;
  result["workspace"] = workspace;
  result["workspace_total"] = plan.workspace.total;
  return result;
}

py::dict geometry() {
  py::dict result;
  result["hidden"] = kHidden;
  result["intermediate"] = kIntermediate;
  result["experts"] = kExperts;
  result["top_k"] = kTopK;
  result["max_tokens"] = kMaxTokens;
  result["group"] = kGroup;
  result["tensor_parallel"] = kTensorParallel;
  return result;
}

py::dict build_info() {
  py::list fused_moe_archs;
  fused_moe_archs.append(arch_name(Arch::kCpu));
  for (const Arch arch : kGpuArchs) {
    if (is_built(arch)) fused_moe_archs.append(arch_name(arch));
  }
  py::dict result;
  result["version"] = CAKE_MOE_VERSION;
  result["cuda_version"] = CAKE_MOE_CUDA_VERSION;
  result["cuda_archs"] = CAKE_MOE_CUDA_ARCHS;
  result["fused_moe_archs"] = fused_moe_archs;
  result["compiler"] = __VERSION__;
  return result;
}

int64_t checked_workspace_bytes(int64_t max_tokens) {
  if (max_tokens < 1 || max_tokens > kMaxTokens) {
    throw std::invalid_argument("workspace_size: max_num_tokens must be in 1.." + std::to_string(kMaxTokens) +
                                ", got " + std::to_string(max_tokens));
  }
  return workspace_bytes(max_tokens);
}

// The formulas of src/numerics, elementwise over numpy arrays.
void define_numerics(py::module_ module) {
  module.def("encode_e2m1", py::vectorize([](float x) { return static_cast<uint8_t>(encode_e2m1(x)); }));
  module.def("decode_e2m1", py::vectorize([](uint8_t code) { return 0.5f * decode_e2m1_twice(code); }));
  module.def("encode_e4m3", py::vectorize([](float x) { return encode_e4m3(x); }));
  module.def("decode_e4m3", py::vectorize([](uint8_t code) { return decode_e4m3(code); }));
  module.def("float_to_bf16", py::vectorize([](float x) { return float_to_bf16(x); }));
  module.def("situ_tanh", py::vectorize([](float z) { return situ_tanh(z); }));
  module.def("situ_sigmoid", py::vectorize([](float z) { return situ_sigmoid(z); }));
  module.def("situ", py::vectorize([](float g, float u, float a, float b, float l) { return situ(g, u, a, b, l); }));
  module.def("fc1_row_feature", py::vectorize([](int row) { return fc1_row_feature(row); }));
  module.def("fc1_row_is_gate", py::vectorize([](int row) { return fc1_row_is_gate(row); }));
  module.def("fc2_row_column", py::vectorize([](int row) { return fc2_row_column(row); }));
  module.def("scale_offset", py::vectorize([](int r, int c, int groups) { return scale_offset(r, c, groups); }));
}

}  // namespace
}  // namespace cake_moe

PYBIND11_MODULE(_C, module) {
  using namespace cake_moe;
  module.doc() = "Plan, workspace layout, build facts and scalar formulas of cake_moe.";
  module.attr("__version__") = CAKE_MOE_VERSION;
  module.def("make_plan", &plan_dict, py::arg("num_tokens"), py::arg("arch"), py::arg("sm_count") = 0);
  module.def("workspace_bytes", &checked_workspace_bytes, py::arg("max_num_tokens"));
  module.def("geometry", &geometry);
  module.def("build_info", &build_info);
  define_numerics(module.def_submodule("numerics", "Scalar formulas, elementwise over numpy arrays."));
}

// The Python module _core.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "bindings/model_bindings.h"
#include "decode/program.h"
#include "exec/machine.h"
#include "shim/tensor_map_encode.h"

namespace py = pybind11;

namespace ptxrun {
namespace {

using Triple = std::array<uint32_t, 3>;
using Bytes = py::array_t<uint8_t, py::array::c_style>;

Dim3 dim(const Triple& values) { return {values[0], values[1], values[2]}; }
Triple triple(const uint32_t (&values)[3]) { return {values[0], values[1], values[2]}; }

Schedule parse_schedule(const std::string& name) {
  if (name == "early") return Schedule::Early;
  if (name == "late") return Schedule::Late;
  if (name == "random") return Schedule::Random;
  throw std::invalid_argument("schedule must be early, late or random, not " + name);
}

CheckLevel parse_checks(const std::string& name) {
  if (name == "none") return CheckLevel::None;
  if (name == "memory") return CheckLevel::Memory;
  if (name == "full") return CheckLevel::Full;
  throw std::invalid_argument("checks must be none, memory or full, not " + name);
}

using ParamTuple = std::tuple<std::string, uint32_t, uint32_t, uint32_t, std::string>;

std::vector<ParamTuple> params_of(const Kernel& kernel) {
  std::vector<ParamTuple> params;
  for (const ParamSlot& slot : kernel.params) {
    params.emplace_back(slot.name, slot.offset, slot.bytes, slot.align, slot.type);
  }
  return params;
}

using CensusTuple = std::tuple<std::string, uint32_t, std::string>;

std::vector<CensusTuple> census_of(const Program& program) {
  std::vector<CensusTuple> lines;
  for (const CensusEntry& entry : census(program.module))
    lines.emplace_back(entry.spelling, entry.count, entry.problem);
  return lines;
}

// Counters with names instead of indices.
struct LaunchReport {
  uint64_t instructions;
  std::map<std::string, uint64_t> by_opcode, by_class, mma_steps;
  uint64_t max_bytes_in_flight_cta, max_bytes_in_flight_sm;
};

LaunchReport launch_report(const Machine& machine, size_t launch) {
  if (launch >= machine.grids.size()) throw std::out_of_range("no launch " + std::to_string(launch));
  const LaunchCounters& counters = machine.counters(launch);
  const Program& program = *machine.grids[launch]->config.program;
  LaunchReport report{counters.instructions,          {}, {}, {}, counters.max_bytes_in_flight_cta,
                      counters.max_bytes_in_flight_sm};
  for (size_t i = 0; i < counters.by_opcode.size(); ++i) {
    if (counters.by_opcode[i] == 0) continue;
    report.by_opcode[program.opcodes[i].spelling] += counters.by_opcode[i];
    report.by_class[kOpClassNames[static_cast<size_t>(program.opcodes[i].op_class)]] += counters.by_opcode[i];
  }
  report.mma_steps.insert(counters.mma_steps.begin(), counters.mma_steps.end());
  return report;
}

struct BufferReport {
  std::string name;
  uint64_t bytes_read, bytes_written;
  std::map<uint64_t, uint64_t> read_histogram;
};

constexpr uint64_t kCountCell = 16;

std::map<uint64_t, uint64_t> read_histogram(const Region& region) {
  std::map<uint64_t, uint64_t> histogram;
  uint64_t covered = 0;
  for (uint64_t page = 0; page < region.read_counts.size(); ++page) {
    if (!region.read_counts[page]) continue;
    for (uint64_t cell = 0; cell < kCountPage / kCountCell; ++cell) {
      const uint64_t at = page * kCountPage + cell * kCountCell;
      if (at >= region.bytes) break;
      const uint64_t bytes = std::min(kCountCell, region.bytes - at), count = region.read_counts[page][cell];
      // Bytes of a cell that were read unequally often: the remainder goes to as many bytes.
      histogram[count / bytes] += bytes - count % bytes;
      if (count % bytes) histogram[count / bytes + 1] += count % bytes;
      covered += bytes;
    }
  }
  if (covered < region.bytes) histogram[0] += region.bytes - covered;
  std::erase_if(histogram, [](const auto& entry) { return entry.second == 0; });
  return histogram;
}

// The machine and what it must keep alive: programs and the callers' buffers.
class PyMachine {
 public:
  PyMachine(const std::string& schedule, uint64_t seed, uint32_t sms, const std::string& checks, uint32_t max_findings,
            uint64_t max_instructions) {
    Options options;
    options.schedule = parse_schedule(schedule);
    options.seed = seed;
    options.sms = sms;
    options.checks = parse_checks(checks);
    options.max_findings = max_findings;
    options.max_instructions = max_instructions;
    machine_ = std::make_unique<Machine>(options);
  }

  void add_buffer(uint64_t address, const Bytes& data, const std::string& name, bool readonly, bool initialised) {
    buffers_.push_back(data);
    machine_->memory.add_global(address, const_cast<uint8_t*>(data.data()), static_cast<uint64_t>(data.size()), name,
                                readonly, initialised);
  }

  void launch(const std::shared_ptr<Program>& program, const std::string& kernel, const Triple& grid,
              const Triple& block, const Triple& cluster, uint32_t dynamic_shared, const std::string& params, bool pdl,
              bool cooperative, bool non_portable_cluster, uint32_t registers) {
    LaunchConfig config;
    config.kernel = program->kernel(kernel);
    if (config.kernel == nullptr) throw std::invalid_argument("the module has no kernel " + kernel);
    config.program = program.get();
    config.grid = dim(grid);
    config.block = dim(block);
    config.cluster = dim(cluster);
    config.dynamic_shared = dynamic_shared;
    config.params.assign(params.begin(), params.end());
    config.pdl = pdl;
    config.cooperative = cooperative;
    config.non_portable_cluster = non_portable_cluster;
    config.registers = registers;
    machine_->launch(std::move(config));
    programs_.push_back(program);
  }

  // Python's signal handlers run now and then; what one of them raises ends the run.
  void run() {
    machine_->interrupted = [] {
      const py::gil_scoped_acquire acquire;
      return PyErr_CheckSignals() != 0;
    };
    {
      const py::gil_scoped_release release;
      machine_->run();
    }
    if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  }

  const Machine& machine() const { return *machine_; }

 private:
  std::vector<Bytes> buffers_;
  std::vector<std::shared_ptr<Program>> programs_;
  std::unique_ptr<Machine> machine_;
};

std::vector<BufferReport> buffer_reports(const PyMachine& self) {
  std::vector<BufferReport> reports;
  for (const auto& region : self.machine().memory.globals()) {
    reports.push_back({region->name, region->bytes_read, region->bytes_written, read_histogram(*region)});
  }
  return reports;
}

void bind_program(py::module_& module) {
  py::class_<Kernel>(module, "KernelInfo")
      .def_readonly("name", &Kernel::name)
      .def_readonly("line", &Kernel::line)
      .def_property_readonly("params", params_of)
      .def_readonly("param_bytes", &Kernel::param_bytes)
      .def_readonly("static_shared", &Kernel::static_shared)
      .def_property_readonly("maxntid", [](const Kernel& self) { return triple(self.maxntid); })
      .def_property_readonly("reqntid", [](const Kernel& self) { return triple(self.reqntid); })
      .def_property_readonly("cluster", [](const Kernel& self) { return triple(self.cluster); })
      .def_readonly("max_registers", &Kernel::max_registers);
  py::class_<Program, std::shared_ptr<Program>>(module, "Program")
      .def(py::init([](const std::string& text) { return std::make_shared<Program>(parse_ptx(text)); }),
           py::arg("text"))
      .def_property_readonly("version", [](const Program& self) { return self.module.version; })
      .def_property_readonly("target", [](const Program& self) { return self.module.target; })
      .def_property_readonly("kernels", [](const Program& self) { return kernel_interfaces(self.module); })
      .def("census", census_of);
}

void bind_reports(py::module_& module) {
  py::class_<FindingPlace>(module, "Place")
      .def_readonly("kernel", &FindingPlace::kernel)
      .def_readonly("instruction", &FindingPlace::instruction)
      .def_readonly("line", &FindingPlace::line)
      .def_readonly("launch", &FindingPlace::launch)
      .def_readonly("cta", &FindingPlace::cta)
      .def_readonly("warp", &FindingPlace::warp)
      .def_readonly("lanes", &FindingPlace::lanes);
  py::class_<Finding>(module, "Finding")
      .def_readonly("code", &Finding::code)
      .def_readonly("message", &Finding::message)
      .def_readonly("place", &Finding::place)
      .def_property_readonly("other",
                             [](const Finding& self) -> py::object {
                               return self.has_other ? py::cast(self.other) : py::object(py::none());
                             })
      .def_readonly("buffer", &Finding::buffer)
      .def_readonly("offset", &Finding::offset)
      .def_readonly("count", &Finding::count);
  py::class_<LaunchReport>(module, "LaunchCounters")
      .def_readonly("instructions", &LaunchReport::instructions)
      .def_readonly("by_opcode", &LaunchReport::by_opcode)
      .def_readonly("by_class", &LaunchReport::by_class)
      .def_readonly("mma_steps", &LaunchReport::mma_steps)
      .def_readonly("max_bytes_in_flight_cta", &LaunchReport::max_bytes_in_flight_cta)
      .def_readonly("max_bytes_in_flight_sm", &LaunchReport::max_bytes_in_flight_sm);
  py::class_<BufferReport>(module, "BufferCounters")
      .def_readonly("name", &BufferReport::name)
      .def_readonly("bytes_read", &BufferReport::bytes_read)
      .def_readonly("bytes_written", &BufferReport::bytes_written)
      .def_readonly("read_histogram", &BufferReport::read_histogram);
}

void bind_machine(py::module_& module) {
  py::class_<PyMachine>(module, "Machine")
      .def(py::init<const std::string&, uint64_t, uint32_t, const std::string&, uint32_t, uint64_t>(), py::kw_only(),
           py::arg("schedule"), py::arg("seed"), py::arg("sms"), py::arg("checks"), py::arg("max_findings"),
           py::arg("max_instructions"))
      .def("add_buffer", &PyMachine::add_buffer, py::arg("address"), py::arg("data").noconvert(), py::arg("name"),
           py::arg("readonly"), py::arg("initialised"))
      .def("launch", &PyMachine::launch, py::arg("program"), py::arg("kernel"), py::kw_only(), py::arg("grid"),
           py::arg("block"), py::arg("cluster"), py::arg("dynamic_shared"), py::arg("params"), py::arg("pdl"),
           py::arg("cooperative"), py::arg("non_portable_cluster"), py::arg("registers"))
      .def("run", &PyMachine::run)
      .def_property_readonly("findings", [](const PyMachine& self) { return self.machine().findings; })
      .def_property_readonly("trace", [](const PyMachine& self) { return self.machine().trace(); })
      .def_property_readonly("output", [](const PyMachine& self) { return py::bytes(self.machine().output); })
      .def(
          "counters", [](const PyMachine& self, size_t launch) { return launch_report(self.machine(), launch); },
          py::arg("launch"))
      .def("buffer_counters", buffer_reports);
}

py::bytes encode(uint32_t dtype, uint64_t address, const std::vector<uint64_t>& dims,
                 const std::vector<uint64_t>& strides, const std::vector<uint32_t>& box,
                 const std::vector<uint32_t>& element_strides, uint32_t interleave, uint32_t swizzle,
                 uint32_t l2_promotion, uint32_t oob_fill) {
  if (dims.empty() || strides.size() + 1 != dims.size() || box.size() != dims.size() ||
      element_strides.size() != dims.size()) {
    throw std::invalid_argument("dims, box and element_strides must have one entry a dimension, strides one less");
  }
  TensorMapDescription description{};
  description.dtype = dtype;
  description.rank = static_cast<uint32_t>(dims.size());
  description.base = address;
  description.dims = dims.data();
  description.strides = strides.data();
  description.box = box.data();
  description.element_strides = element_strides.data();
  description.interleave = interleave;
  description.swizzle = swizzle;
  description.l2_promotion = l2_promotion;
  description.oob_fill = oob_fill;
  TensorMapHandle handle;
  if (const char* error = encode_tensor_map(description, handle)) throw std::invalid_argument(error);
  return {reinterpret_cast<const char*>(&handle), sizeof(handle)};
}

}  // namespace
}  // namespace ptxrun

PYBIND11_MODULE(_core, module) {
  using namespace ptxrun;
  bind_model(module);
  py::register_exception<PtxError>(module, "PtxError", PyExc_ValueError);
  bind_program(module);
  bind_reports(module);
  bind_machine(module);
  py::dict codes;
  for (const FindingCode& code : kFindingCodes) codes[code.name] = code.meaning;
  module.attr("FINDING_CODES") = codes;
  module.def("encode_tensor_map", encode, py::kw_only(), py::arg("dtype"), py::arg("address"), py::arg("dims"),
             py::arg("strides"), py::arg("box"), py::arg("element_strides"), py::arg("interleave"), py::arg("swizzle"),
             py::arg("l2_promotion"), py::arg("oob_fill"));
}

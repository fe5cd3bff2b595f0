// The pure functions of src/model for tests: arrays in, arrays out.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <unordered_map>

#include "bindings/model_bindings.h"
#include "model/approximations.h"
#include "model/conversions.h"
#include "model/fragments.h"
#include "model/instruction_descriptor.h"
#include "model/mma_arithmetic.h"
#include "model/smem_layout.h"
#include "model/tensor_box.h"
#include "model/tmem_layout.h"

namespace py = pybind11;

namespace ptxrun {
namespace {

using namespace ptxrun::model;

template <class T>
using Array = py::array_t<T, py::array::c_style | py::array::forcecast>;

template <class Value>
const Value& look_up(const std::unordered_map<std::string, Value>& table, const std::string& name) {
  const auto found = table.find(name);
  if (found == table.end()) throw std::invalid_argument("unknown name: " + name);
  return found->second;
}

const FloatFormat& format(const std::string& name) {
  static const std::unordered_map<std::string, const FloatFormat*> kFormats = {
      {"f64", &kF64},   {"f32", &kF32},   {"f16", &kF16},   {"bf16", &kBf16}, {"e4m3", &kE4m3},
      {"e5m2", &kE5m2}, {"e2m3", &kE2m3}, {"e3m2", &kE3m2}, {"e2m1", &kE2m1}};
  return *look_up(kFormats, name);
}

Rounding rounding(const std::string& name) {
  static const std::unordered_map<std::string, Rounding> kRoundings = {{"rn", Rounding::kNearestEven},
                                                                       {"rna", Rounding::kNearestAway},
                                                                       {"rz", Rounding::kTowardZero},
                                                                       {"rm", Rounding::kDown},
                                                                       {"rp", Rounding::kUp}};
  return look_up(kRoundings, name);
}

IntegerType integer_type(const std::string& name) { return {std::stoi(name.substr(1)), name[0] == 's'}; }

AccumulationRule rule(const std::string& name) {
  static const std::unordered_map<std::string, AccumulationRule> kRules = {
      {"hopper", kHopperRule},
      {"hopper_fp8_wgmma", kHopperFp8WgmmaRule},
      {"tcgen05", kTcgen05Rule},
      {"hopper_f16", {kHopperRule.fraction_bits, ResultFormat::kF16}}};
  return look_up(kRules, name);
}

UnaryFunction unary_function(const std::string& name) {
  static const std::unordered_map<std::string, UnaryFunction> kFunctions = {
      {"ex2", UnaryFunction::kExp2},  {"rcp", UnaryFunction::kReciprocal}, {"rsqrt", UnaryFunction::kReciprocalSqrt},
      {"sqrt", UnaryFunction::kSqrt}, {"lg2", UnaryFunction::kLog2},       {"sin", UnaryFunction::kSin},
      {"cos", UnaryFunction::kCos},   {"tanh", UnaryFunction::kTanh}};
  return look_up(kFunctions, name);
}

MmaKind mma_kind(const std::string& name) {
  static const std::unordered_map<std::string, MmaKind> kKinds = {
      {"f16", MmaKind::kF16},           {"tf32", MmaKind::kTf32}, {"f8f6f4", MmaKind::kF8f6f4},    {"i8", MmaKind::kI8},
      {"mxf8f6f4", MmaKind::kMxf8f6f4}, {"mxf4", MmaKind::kMxf4}, {"mxf4nvf4", MmaKind::kMxf4nvf4}};
  return look_up(kKinds, name);
}

TmemShape tmem_shape(const std::string& name) {
  static const std::unordered_map<std::string, TmemShape> kShapes = {{"32x32b", TmemShape::k32x32b},
                                                                     {"16x64b", TmemShape::k16x64b},
                                                                     {"16x128b", TmemShape::k16x128b},
                                                                     {"16x256b", TmemShape::k16x256b},
                                                                     {"16x32bx2", TmemShape::k16x32bx2}};
  return look_up(kShapes, name);
}

CopyShape copy_shape(const std::string& name) {
  static const std::unordered_map<std::string, CopyShape> kShapes = {
      {"128x256b", CopyShape::k128x256b},
      {"4x256b", CopyShape::k4x256b},
      {"128x128b", CopyShape::k128x128b},
      {"64x128b.warpx2::02_13", CopyShape::k64x128bWarpx2_02_13},
      {"64x128b.warpx2::01_23", CopyShape::k64x128bWarpx2_01_23},
      {"32x128b.warpx4", CopyShape::k32x128bWarpx4}};
  return look_up(kShapes, name);
}

Major major(const std::string& name) { return name == "k" ? Major::kK : Major::kMN; }

template <class Result, class Function>
Array<Result> map_bits(const Array<uint64_t>& bits, Function function) {
  Array<Result> result(bits.size());
  for (py::ssize_t i = 0; i < bits.size(); ++i)
    result.mutable_data()[i] = static_cast<Result>(function(bits.data()[i]));
  return result;
}

std::vector<std::pair<std::string, std::string>> as_pairs(const Problems& problems) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const Problem& problem : problems) pairs.emplace_back(problem.name, problem.detail);
  return pairs;
}

void bind_conversions(py::module_& m) {
  m.def(
      "convert",
      [](const std::string& to, const std::string& from, const Array<uint64_t>& bits, const std::string& mode,
         bool satfinite, bool relu, bool ftz, bool sat) {
        const ConvertOptions options{rounding(mode), satfinite, relu, ftz, ftz, sat};
        return map_bits<uint64_t>(bits, [&](uint64_t x) { return convert(format(to), format(from), x, options); });
      },
      py::arg("to"), py::arg("from_"), py::arg("bits"), py::arg("rounding") = "rn", py::arg("satfinite") = false,
      py::arg("relu") = false, py::arg("ftz") = false, py::arg("sat") = false);
  m.def("convert_pair", [](const std::string& to, const std::string& from, uint64_t high, uint64_t low) {
    return convert_pair(format(to), format(from), high, low, {.saturate_finite = true});
  });
  m.def("convert_packed", [](const std::string& to, const std::string& from, uint64_t packed) {
    return convert_packed(format(to), format(from), packed, {.saturate_finite = true});
  });
  m.def("float_to_integer",
        [](const std::string& to, const std::string& from, const Array<uint64_t>& bits, const std::string& mode) {
          return map_bits<uint64_t>(
              bits, [&](uint64_t x) { return float_to_integer(integer_type(to), format(from), x, rounding(mode)); });
        });
  m.def("integer_to_float",
        [](const std::string& to, const std::string& from, const Array<uint64_t>& bits, const std::string& mode) {
          return map_bits<uint64_t>(
              bits, [&](uint64_t x) { return integer_to_float(format(to), integer_type(from), x, rounding(mode)); });
        });
  m.def("integer_to_integer", [](const std::string& to, const std::string& from, uint64_t bits, bool saturate) {
    return integer_to_integer(integer_type(to), integer_type(from), bits, saturate);
  });
  m.def("round_to_integral", [](const std::string& name, const Array<uint64_t>& bits, const std::string& mode) {
    return map_bits<uint64_t>(bits, [&](uint64_t x) { return round_to_integral(format(name), x, rounding(mode)); });
  });
  m.def("ue8m0_from", [](const std::string& from, const Array<uint64_t>& bits, const std::string& mode,
                         bool satfinite) {
    return map_bits<uint64_t>(bits, [&](uint64_t x) { return ue8m0_from(format(from), x, rounding(mode), satfinite); });
  });
  m.def("bf16_from_ue8m0", [](const Array<uint64_t>& bits) {
    return map_bits<uint64_t>(bits, [](uint64_t x) { return bf16_from_ue8m0(static_cast<uint8_t>(x)); });
  });
  m.def("approximate", [](const std::string& function, const std::string& name, const Array<uint64_t>& bits, bool ftz) {
    return map_bits<uint64_t>(bits,
                              [&](uint64_t x) { return approximate(unary_function(function), format(name), x, ftz); });
  });
  m.def("divide_approx", &divide_approx);
  m.def("divide_full", &divide_full);
}

void bind_arithmetic(py::module_& m) {
  m.def(
      "dot_step",
      [](const std::string& rule_name, const std::string& a_format, const Array<uint16_t>& a,
         const std::string& b_format, const Array<uint16_t>& b, const Array<uint32_t>& c, bool accumulate,
         bool negate_a, const Array<int8_t>& a_scales, const Array<int8_t>& b_scales) {
        const StepShape shape{static_cast<int>(a.shape(0)), static_cast<int>(b.shape(0)), static_cast<int>(a.shape(1))};
        Array<uint32_t> d({a.shape(0), b.shape(0)});
        std::memcpy(d.mutable_data(), c.data(), static_cast<size_t>(c.nbytes()));
        const auto scales = [](const Array<int8_t>& x) { return x.size() == 0 ? nullptr : x.data(); };
        dot_step(shape, {&format(a_format), a.data(), negate_a, scales(a_scales)},
                 {&format(b_format), b.data(), false, scales(b_scales)}, {d.mutable_data(), b.shape(0)}, accumulate,
                 rule(rule_name));
        return d;
      },
      py::arg("rule"), py::arg("a_format"), py::arg("a"), py::arg("b_format"), py::arg("b"), py::arg("c"),
      py::arg("accumulate") = true, py::arg("negate_a") = false, py::arg("a_scales") = Array<int8_t>(0),
      py::arg("b_scales") = Array<int8_t>(0));
  m.def(
      "dot_step_fp4",
      [](const Array<uint8_t>& a, const Array<uint8_t>& a_scales, const Array<uint8_t>& b,
         const Array<uint8_t>& b_scales, const Array<uint32_t>& c, bool ue8m0, bool accumulate) {
        Array<uint32_t> d({a.shape(0), b.shape(0)});
        std::memcpy(d.mutable_data(), c.data(), static_cast<size_t>(c.nbytes()));
        dot_step_fp4(static_cast<int>(a.shape(0)), static_cast<int>(b.shape(0)), {a.data(), a_scales.data()},
                     {b.data(), b_scales.data()}, ue8m0 ? ScaleFormat::kUe8m0 : ScaleFormat::kUe4m3,
                     {d.mutable_data(), b.shape(0)}, accumulate);
        return d;
      },
      py::arg("a"), py::arg("a_scales"), py::arg("b"), py::arg("b_scales"), py::arg("c"), py::arg("ue8m0") = false,
      py::arg("accumulate") = true);
}

void bind_descriptors(py::module_& m) {
  m.def("decode_smem_descriptor", [](const std::string& kind, uint64_t descriptor) {
    Problems problems;
    const SmemMatrix x = kind == "wgmma" ? decode_wgmma_descriptor(descriptor, problems)
                                         : decode_tcgen05_descriptor(descriptor, problems);
    return py::make_tuple(
        py::dict(py::arg("start") = x.start, py::arg("leading") = x.leading, py::arg("stride") = x.stride,
                 py::arg("base_offset") = x.base_offset, py::arg("swizzle") = x.swizzle),
        as_pairs(problems));
  });
  m.def("check_smem_matrix", [](uint32_t start, uint32_t leading, uint32_t stride, uint32_t swizzle,
                                const std::string& majorness, int rows, int k, int element_bits) {
    Problems problems;
    check_smem_matrix({start, leading, stride, 0, swizzle}, major(majorness), rows, k, element_bits, problems);
    return as_pairs(problems);
  });
  m.def("element_addresses", [](uint32_t start, uint32_t leading, uint32_t stride, uint32_t swizzle,
                                const std::string& majorness, int rows, int k, int element_bits) {
    Array<uint32_t> result({rows, k});
    for (int row = 0; row < rows; ++row) {
      for (int column = 0; column < k; ++column) {
        *result.mutable_data(row, column) =
            element_address({start, leading, stride, 0, swizzle}, major(majorness), row, column, element_bits);
      }
    }
    return result;
  });
  m.def("swizzle_address", &swizzle_address, py::arg("address"), py::arg("span"), py::arg("base_offset") = 0);
  m.def("decode_instruction_descriptor",
        [](uint32_t descriptor, const std::string& kind, int scale_vector, int cta_group) {
          Problems problems;
          const InstructionDescriptor x =
              decode_instruction_descriptor(descriptor, mma_kind(kind), scale_vector, cta_group, problems);
          return py::make_tuple(
              py::dict(py::arg("m") = x.m, py::arg("n") = x.n, py::arg("k") = x.k, py::arg("negate_a") = x.negate_a,
                       py::arg("negate_b") = x.negate_b, py::arg("transpose_a") = x.transpose_a,
                       py::arg("transpose_b") = x.transpose_b, py::arg("scale_a_id") = x.scale_a_id,
                       py::arg("scale_b_id") = x.scale_b_id, py::arg("f16_accumulators") = x.f16_accumulators,
                       py::arg("ue8m0") = x.scale_format == ScaleFormat::kUe8m0,
                       py::arg("a_width") = x.a_format == nullptr ? 0 : x.a_format->width(),
                       py::arg("b_width") = x.b_format == nullptr ? 0 : x.b_format->width()),
              as_pairs(problems));
        });
}

void bind_layouts(py::module_& m) {
  m.def("registers_per_thread",
        [](const std::string& shape, int repeat) { return registers_per_thread(tmem_shape(shape), repeat); });
  m.def("is_legal_repeat",
        [](const std::string& shape, int repeat) { return is_legal_repeat(tmem_shape(shape), repeat); });
  m.def("register_cell", [](const std::string& shape, int thread, int index, int half_split) {
    const TmemCell cell = register_cell(tmem_shape(shape), thread, index, half_split);
    return std::pair(cell.lane, cell.column);
  });
  m.def("copy_lanes", [](const std::string& name) {
    const CopyShape shape = copy_shape(name);
    const CopyExtent extent = copy_extent(shape);
    std::vector<std::vector<int>> lanes(extent.rows);
    for (int row = 0; row < extent.rows; ++row) {
      for (int copy = 0; copy < extent.copies; ++copy) lanes[row].push_back(copy_lane(shape, row, copy));
    }
    return std::pair(extent.row_bytes, lanes);
  });
  m.def("accumulator_cell", [](int rows, int n, int cta_group, int row, int column) {
    const TmemCell cell = AccumulatorLayout{rows, n, cta_group}.cell(row, column);
    return std::pair(cell.lane, cell.column);
  });
  m.def("scale_cell", [](int row, int partition) {
    const TmemCell cell = scale_cell(row, partition);
    return std::pair(cell.lane, cell.column);
  });
  const auto fragment = [](MatrixIndex index) { return std::pair(index.row, index.column); };
  m.def("a_fragment", [=](int thread, int index, int per) { return fragment(a_fragment(thread, index, per)); });
  m.def("b_fragment", [=](int thread, int index, int per) { return fragment(b_fragment(thread, index, per)); });
  m.def("accumulator_fragment", [=](int thread, int index) { return fragment(accumulator_fragment(thread, index)); });
}

TensorMapHandle handle_from(const py::bytes& bytes) {
  const std::string_view text = bytes;
  TensorMapHandle handle;
  if (text.size() != sizeof(handle)) throw std::invalid_argument("a tensor map has 128 bytes");
  std::memcpy(&handle, text.data(), sizeof(handle));
  return handle;
}

void bind_boxes(py::module_& m) {
  const auto as_tuples = [](const std::vector<BoxRun>& runs) {
    py::list list;
    for (const BoxRun& run : runs) list.append(py::make_tuple(run.global, run.shared, run.bytes, run.inside));
    return list;
  };
  m.def("box_bytes", [](const py::bytes& map) { return box_bytes(handle_from(map)); });
  m.def("box_runs", [=](const py::bytes& map, const std::vector<int32_t>& coordinates, uint32_t shared) {
    std::vector<BoxRun> runs;
    box_runs(handle_from(map), coordinates.data(), shared, runs);
    return as_tuples(runs);
  });
  m.def("gather4_runs", [=](const py::bytes& map, const std::vector<int32_t>& coordinates, uint32_t shared) {
    std::vector<BoxRun> runs;
    gather4_runs(handle_from(map), coordinates.data(), shared, runs);
    return as_tuples(runs);
  });
  m.def("check_box_copy",
        [](const py::bytes& map, uint32_t shared) { return as_pairs(check_box_copy(handle_from(map), shared)); });
  m.def("fill_pattern", [](const py::bytes& map) {
    uint8_t pattern[16];
    fill_pattern(handle_from(map), pattern);
    return py::bytes(reinterpret_cast<const char*>(pattern), sizeof(pattern));
  });
}

}  // namespace

void bind_model(py::module_& parent) {
  py::module_ m = parent.def_submodule("model", "Pure functions of the machine model, for tests.");
  bind_conversions(m);
  bind_arithmetic(m);
  bind_descriptors(m);
  bind_layouts(m);
  bind_boxes(m);
}

}  // namespace ptxrun

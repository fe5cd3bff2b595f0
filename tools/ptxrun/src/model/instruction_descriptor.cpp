#include "model/instruction_descriptor.h"

#include <string>

namespace ptxrun::model {
namespace {

constexpr uint32_t field(uint32_t value, int first, int count) { return (value >> first) & ((1u << count) - 1); }

class Reader {
 public:
  Reader(uint32_t descriptor, MmaKind kind, Problems& problems)
      : descriptor_(descriptor), kind_(kind), problems_(problems) {}

  void problem(const char* name, std::string detail) { problems_.push_back({name, std::move(detail)}); }

  void expect_zero(int first, int count, const char* what) {
    if (field(descriptor_, first, count) != 0) {
      problem("instruction_descriptor.reserved_bits", std::string(what) + " (bit " + std::to_string(first) +
                                                          ") must be zero, is " +
                                                          std::to_string(field(descriptor_, first, count)));
    }
  }

  const FloatFormat* format(int first, const char* operand) {
    const uint32_t code = field(descriptor_, first, 3);
    if (const FloatFormat* format = lookup(code)) return format;
    problem("instruction_descriptor.type", std::string(operand) + " type " + std::to_string(code) +
                                               " does not exist or is not modelled for this kind");
    return nullptr;
  }

 private:
  const FloatFormat* lookup(uint32_t code) const {
    switch (kind_) {
      case MmaKind::kF16:
        return code == 0 ? &kF16 : code == 1 ? &kBf16 : nullptr;
      case MmaKind::kF8f6f4:
      case MmaKind::kMxf8f6f4: {
        constexpr const FloatFormat* kFormats[] = {&kE4m3, &kE5m2, nullptr, &kE2m3, &kE3m2, &kE2m1, nullptr, nullptr};
        return kFormats[code];
      }
      case MmaKind::kMxf4:
      case MmaKind::kMxf4nvf4:
        return code == 1 ? &kE2m1 : nullptr;
      default:
        return nullptr;
    }
  }

  uint32_t descriptor_;
  MmaKind kind_;
  Problems& problems_;
};

void check_shape(const InstructionDescriptor& desc, MmaKind kind, int cta_group, Reader& reader) {
  const bool scaled = is_block_scaled(kind);
  const bool m_legal = cta_group == 2 ? desc.m == 128 || desc.m == 256 : desc.m == 128 || (desc.m == 64 && !scaled);
  if (!m_legal) {
    reader.problem("instruction_descriptor.m",
                   "M = " + std::to_string(desc.m) + " is not legal with cta_group::" + std::to_string(cta_group));
  }
  const int step = cta_group == 2 ? 16 : (scaled || desc.m == 64 ? 8 : 16);
  if (desc.n < step || desc.n > 256 || desc.n % step != 0) {
    reader.problem("instruction_descriptor.n",
                   "N = " + std::to_string(desc.n) + " must be a multiple of " + std::to_string(step) + " up to 256");
  }
}

void read_scaled(uint32_t descriptor, MmaKind kind, int scale_vector, InstructionDescriptor& desc, Reader& reader) {
  reader.expect_zero(3, 1, "reserved bit");
  if (is_packed_fp4(kind)) reader.expect_zero(12, 1, "reserved bit");
  reader.expect_zero(24, 3, "reserved bits");
  desc.m = static_cast<int>(field(descriptor, 27, 2)) << 7;
  desc.scale_format = field(descriptor, 23, 1) != 0 ? ScaleFormat::kUe8m0 : ScaleFormat::kUe4m3;
  desc.scale_b_id = static_cast<int>(field(descriptor, 4, 2));
  desc.scale_a_id = static_cast<int>(field(descriptor, 29, 2));
  if ((kind != MmaKind::kMxf4nvf4 || scale_vector == 2) && desc.scale_format != ScaleFormat::kUe8m0) {
    reader.problem("instruction_descriptor.scale_type", "blocks of 32 take ue8m0 scales, the descriptor says ue4m3");
  }
  const auto check_id = [&](int id, const char* operand) {
    const bool legal = scale_vector == 4 ? id == 0 : scale_vector == 2 ? id % 2 == 0 : true;
    if (!legal) {
      reader.problem("instruction_descriptor.scale_id", std::string("scale id ") + std::to_string(id) + " of " +
                                                            operand + " is not aligned to " +
                                                            std::to_string(scale_vector) + " bytes");
    }
  };
  check_id(desc.scale_a_id, "A");
  check_id(desc.scale_b_id, "B");
  if (field(descriptor, 31, 1) != 0) {
    reader.problem("instruction_descriptor.k", "the K = 96 step of sm_103a (bit 31) is not modelled");
  }
}

void read_plain(uint32_t descriptor, MmaKind kind, InstructionDescriptor& desc, Reader& reader) {
  reader.expect_zero(3, 1, "saturation");
  reader.expect_zero(23, 1, "reserved bit");
  reader.expect_zero(29, 1, "reserved bit");
  reader.expect_zero(30, 2, "shift of .ws");
  desc.m = static_cast<int>(field(descriptor, 24, 5)) << 4;
  const uint32_t d_type = field(descriptor, 4, 2);
  desc.f16_accumulators = d_type == 0;
  if (d_type > 1 || (d_type == 0 && kind == MmaKind::kTf32)) {
    reader.problem("instruction_descriptor.type",
                   "D type " + std::to_string(d_type) + " does not exist or is not modelled for this kind");
  }
}

}  // namespace

InstructionDescriptor decode_instruction_descriptor(uint32_t descriptor, MmaKind kind, int scale_vector, int cta_group,
                                                    Problems& problems) {
  Reader reader(descriptor, kind, problems);
  InstructionDescriptor desc;
  reader.expect_zero(0, 2, "sparsity selector");
  reader.expect_zero(2, 1, "sparsity");
  reader.expect_zero(6, 1, "reserved bit");
  desc.n = static_cast<int>(field(descriptor, 17, 6)) << 3;
  desc.a_format = reader.format(7, "A");
  desc.b_format = reader.format(10, "B");
  desc.negate_a = field(descriptor, 13, 1) != 0;
  desc.negate_b = field(descriptor, 14, 1) != 0;
  desc.transpose_a = field(descriptor, 15, 1) != 0;
  desc.transpose_b = field(descriptor, 16, 1) != 0;
  desc.k = kind == MmaKind::kF16 ? 16 : is_packed_fp4(kind) ? 64 : kind == MmaKind::kTf32 ? 8 : 32;
  if (is_block_scaled(kind)) {
    read_scaled(descriptor, kind, scale_vector, desc, reader);
  } else {
    read_plain(descriptor, kind, desc, reader);
  }
  if (is_packed_fp4(kind) && (desc.transpose_a || desc.transpose_b)) {
    reader.problem("instruction_descriptor.transpose", "packed fp4 operands cannot be transposed");
  }
  check_shape(desc, kind, cta_group, reader);
  return desc;
}

}  // namespace ptxrun::model

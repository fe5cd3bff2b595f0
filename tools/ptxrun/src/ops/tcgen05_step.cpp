#include "ops/tcgen05_step.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <span>

#include "exec/warp.h"

namespace ptxrun::ops {
namespace {

constexpr uint32_t kScaleAddressMask = 0x3FFF'FFFF;  // the two top bits repeat the scale id
constexpr int kPartitions = kTmemLanes / model::kTmemPartition;
constexpr int kPackedRowBytes = 32;
constexpr int kFp4Groups = 4;
constexpr int kUe8m0Bias = 127;

int lane_of(uint32_t address) { return static_cast<int>(tmem_lane(address)); }
int column_of(uint32_t address) { return static_cast<int>(tmem_column(address)); }

}  // namespace

// Operands of one CTA's part of the step.
struct MmaStep::Inputs {
  std::vector<uint16_t> a, b;                    // elements of 8 or 16 bits
  std::vector<uint8_t> a4, b4;                   // packed fp4
  std::vector<uint8_t> as, bs;                   // scales, one a row or four of fp4
  std::vector<int8_t> a_exponents, b_exponents;  // of one ue8m0 scale a row
  std::unique_ptr<bool[]> a_nan, b_nan;
};

MmaStep::MmaStep(const MmaMods& mods, const MmaOperands& operands, model::Problems& problems)
    : mods_(mods), operands_(operands) {
  operands_.a_scales &= kScaleAddressMask;
  operands_.b_scales &= kScaleAddressMask;
  descriptor_ =
      model::decode_instruction_descriptor(operands.descriptor, mods.kind, mods.scale_vector, mods.cta_group, problems);
  if (!problems.empty()) return;
  const int a_bits = descriptor_.a_format->width(), b_bits = descriptor_.b_format->width();
  if (!is_packed_fp4(mods.kind) && (a_bits < 8 || b_bits < 8)) {
    problems.push_back({"instruction_descriptor.type", "padded elements of 4 and 6 bits are not modelled"});
    return;
  }
  const auto major = [](bool transposed) { return transposed ? model::Major::kMN : model::Major::kK; };
  if (!mods.a_in_tmem) {
    const model::SmemMatrix matrix = model::decode_tcgen05_descriptor(operands.a_descriptor, problems);
    a_ = SmemOperand(matrix, major(descriptor_.transpose_a), 0, rows(), descriptor_.k, a_bits);
    if (problems.empty()) {
      model::check_smem_matrix(matrix, major(descriptor_.transpose_a), rows(), descriptor_.k, a_bits, problems);
    }
  }
  const int b_rows = descriptor_.n / mods.cta_group;
  const model::SmemMatrix matrix = model::decode_tcgen05_descriptor(operands.b_descriptor, problems);
  b_ = SmemOperand(matrix, major(descriptor_.transpose_b), 0, b_rows, descriptor_.k, b_bits);
  if (problems.empty()) {
    model::check_smem_matrix(matrix, major(descriptor_.transpose_b), b_rows, descriptor_.k, b_bits, problems);
  }
}

std::vector<MmaStep::Block> MmaStep::blocks() const {
  const int lane = lane_of(operands_.d), column = column_of(operands_.d), n = descriptor_.n;
  std::vector<Block> result;
  const int row_step = descriptor_.m == 64 ? 16 : rows();
  const int column_step = layout().columns();
  for (int row = 0; row < rows(); row += row_step) {
    for (int first = 0; first < n; first += column_step) {
      const model::TmemCell cell = layout().cell(row, first);
      result.push_back(
          {row, row_step, first, column_step, {lane + cell.lane, row_step, column + cell.column, column_step}});
    }
  }
  return result;
}

TmemRange MmaStep::a_range() const {
  return {lane_of(operands_.a_tmem), rows(), column_of(operands_.a_tmem),
          descriptor_.k * descriptor_.a_format->width() / 32};
}

std::vector<TmemRange> MmaStep::scale_ranges(uint32_t address, int count, int partition) const {
  const int lane = lane_of(address) + model::kTmemPartition * partition, column = column_of(address);
  const int full = count / model::kTmemPartition, rest = count % model::kTmemPartition;
  std::vector<TmemRange> result;
  if (full != 0) result.push_back({lane, model::kTmemPartition, column, full});
  if (rest != 0) result.push_back({lane, rest, column + full, 1});
  return result;
}

bool MmaStep::check_ranges(Warp& warp, LaneMask lanes) const {
  const bool half_used = descriptor_.m == 64;
  const int d_lane = lane_of(operands_.d);
  if (d_lane != 0 && !(half_used && d_lane == 16)) {
    warp.report(code::kTmemAccess,
                "the accumulators start in lane " + std::to_string(d_lane) + (half_used ? ", not 0 or 16" : ", not 0"),
                lanes);
    return false;
  }
  if (mods_.scale_vector != 0 && (lane_of(operands_.a_scales) != 0 || lane_of(operands_.b_scales) != 0)) {
    warp.report(code::kTmemAccess, "scale factors do not start in lane 0", lanes);
    return false;
  }
  for (Cta* cta : group_of(warp.cta, mods_.cta_group)) {
    for (const Block& block : blocks()) {
      if (!check_tmem(warp, *cta, block.where, "the accumulator", lanes)) return false;
    }
    if (mods_.a_in_tmem && !check_tmem(warp, *cta, a_range(), "A", lanes)) return false;
    if (mods_.scale_vector == 0) continue;
    for (const TmemRange& range : scale_ranges(operands_.a_scales, rows(), 0)) {
      if (!check_tmem(warp, *cta, range, "the scale factors of A", lanes)) return false;
    }
    for (const TmemRange& range : scale_ranges(operands_.b_scales, scaled_columns(), 0)) {
      if (!check_tmem(warp, *cta, range, "the scale factors of B", lanes)) return false;
    }
  }
  return true;
}

void MmaStep::announce(check::Issue& issue, Cta& cta) const {
  for (Cta* part : group_of(cta, mods_.cta_group)) {
    Sm& sm = *part->sm;
    if (mods_.a_in_tmem) {
      issue.set_layout(check::Layout::Unknown);
      announce_read(issue, sm, a_range());
    } else {
      a_.announce(issue, part->shared);
    }
    b_.announce(issue, part->shared);
    issue.set_layout(check::Layout::ScaleFactors);
    for (int partition = 0; mods_.scale_vector != 0 && partition < kPartitions; ++partition) {
      for (const TmemRange& range : scale_ranges(operands_.a_scales, rows(), partition))
        announce_read(issue, sm, range);
      for (const TmemRange& range : scale_ranges(operands_.b_scales, scaled_columns(), partition)) {
        announce_read(issue, sm, range);
      }
    }
    issue.set_layout(check::Layout::Accumulator);
    for (const Block& block : blocks()) {
      if (operands_.accumulates) announce_read(issue, sm, block.where);
      announce_write(issue, sm, block.where);
    }
  }
}

void MmaStep::execute(Machine& machine, Cta& cta, const Site& site) const {
  for (Cta* part : group_of(cta, mods_.cta_group)) {
    Inputs inputs;
    fetch(machine, *part, site, inputs);
    for (const Block& block : blocks()) run_block(*part, block, inputs);
  }
}

void MmaStep::fetch(Machine& machine, Cta& cta, const Site& site, Inputs& inputs) const {
  fetch_a(machine, cta, site, inputs);
  fetch_b(machine, cta, site, inputs);
  if (mods_.scale_vector != 0) fetch_scales(machine, cta, site, inputs);
}

void MmaStep::fetch_a(Machine& machine, Cta& cta, const Site& site, Inputs& inputs) const {
  const bool packed = is_packed_fp4(mods_.kind);
  inputs.a4.resize(packed ? static_cast<size_t>(rows()) * kPackedRowBytes : 0);
  inputs.a.resize(packed ? 0 : static_cast<size_t>(rows()) * descriptor_.k);
  if (!mods_.a_in_tmem) {
    if (packed) return a_.fetch_packed(machine, cta.shared, site, inputs.a4.data());
    return a_.fetch(machine, cta.shared, site, inputs.a.data());
  }
  const TmemRange range = a_range();
  const int width = descriptor_.a_format->width();
  for (int row = 0; row < rows(); ++row) {
    const uint32_t* cells = cta.sm->ext<TmemState>().lane(range.lane + row) + range.column;
    if (packed) {
      std::memcpy(&inputs.a4[static_cast<size_t>(row) * kPackedRowBytes], cells, kPackedRowBytes);
      continue;
    }
    for (int k = 0; k < descriptor_.k; ++k) {
      const uint32_t word = cells[k * width / 32] >> (k * width % 32);
      inputs.a[static_cast<size_t>(row) * descriptor_.k + k] = static_cast<uint16_t>(word & ((1u << width) - 1));
    }
  }
}

// The CTAs of a pair hold half of N each.
void MmaStep::fetch_b(Machine& machine, Cta& cta, const Site& site, Inputs& inputs) const {
  const bool packed = is_packed_fp4(mods_.kind);
  const size_t half = static_cast<size_t>(b_.rows());
  inputs.b4.resize(packed ? static_cast<size_t>(descriptor_.n) * kPackedRowBytes : 0);
  inputs.b.resize(packed ? 0 : static_cast<size_t>(descriptor_.n) * descriptor_.k);
  size_t first = 0;
  for (Cta* part : group_of(cta, mods_.cta_group)) {
    if (packed) {
      b_.fetch_packed(machine, part->shared, site, inputs.b4.data() + first * kPackedRowBytes);
    } else {
      b_.fetch(machine, part->shared, site, inputs.b.data() + first * descriptor_.k);
    }
    first += half;
  }
}

uint32_t MmaStep::scale_word(Machine& machine, Cta& cta, const Site& site, uint32_t address, int row,
                             int first_partition, int partitions) const {
  TmemState& tmem = cta.sm->ext<TmemState>();
  const auto word = [&](int partition) {
    const model::TmemCell cell = model::scale_cell(row, partition);
    return tmem.lane(lane_of(address) + cell.lane)[column_of(address) + cell.column];
  };
  const uint32_t result = word(first_partition);
  for (int i = 1; i < partitions; ++i) {
    if (word(first_partition + i) == result) continue;
    machine.report(code::kBadOperand,
                   "the scale factors of row " + std::to_string(row) + " differ between lane partitions " +
                       std::to_string(first_partition) + " and " + std::to_string(first_partition + i),
                   site);
    break;
  }
  return result;
}

void MmaStep::fetch_scales(Machine& machine, Cta& cta, const Site& site, Inputs& inputs) const {
  const auto expand = [&](uint32_t word, int id, std::vector<uint8_t>& scales) {
    const auto byte = [&](int i) { return static_cast<uint8_t>(word >> (8 * (id + i))); };
    if (!is_packed_fp4(mods_.kind)) return scales.push_back(byte(0));
    for (int group = 0; group < kFp4Groups; ++group) scales.push_back(byte(group * mods_.scale_vector / kFp4Groups));
  };
  for (int row = 0; row < rows(); ++row) {
    expand(scale_word(machine, cta, site, operands_.a_scales, row, 0, kPartitions), descriptor_.scale_a_id, inputs.as);
  }
  for (int column = 0; column < descriptor_.n; ++column) {
    const int part = column / scaled_columns(), partitions = kPartitions * scaled_columns() / descriptor_.n;
    expand(scale_word(machine, cta, site, operands_.b_scales, column % scaled_columns(), part * partitions, partitions),
           descriptor_.scale_b_id, inputs.bs);
  }
  if (is_packed_fp4(mods_.kind)) return;
  const auto exponents = [](const std::vector<uint8_t>& scales, std::vector<int8_t>& to, std::unique_ptr<bool[]>& nan) {
    nan = std::make_unique<bool[]>(scales.size());
    for (size_t i = 0; i < scales.size(); ++i) {
      to.push_back(static_cast<int8_t>(scales[i] - kUe8m0Bias));
      nan[i] = scales[i] == 0xFF;
    }
  };
  exponents(inputs.as, inputs.a_exponents, inputs.a_nan);
  exponents(inputs.bs, inputs.b_exponents, inputs.b_nan);
}

void MmaStep::run_block(Cta& cta, const Block& block, const Inputs& inputs) const {
  TmemState& tmem = cta.sm->ext<TmemState>();
  const auto disabled = [&](int lane) {
    const int word = lane / 32 + (mods_.mask_words == 8 ? 4 * static_cast<int>(cta.rank % 2) : 0);
    return mods_.mask_words != 0 && (operands_.disabled_lanes[static_cast<size_t>(word)] >> (lane % 32) & 1) != 0;
  };
  std::vector<uint32_t> kept;  // of disabled lanes
  for (int i = 0; i < block.rows; ++i) {
    uint32_t* cells = tmem.lane(block.where.lane + i) + block.where.column;
    if (disabled(block.where.lane + i)) kept.insert(kept.end(), cells, cells + block.columns);
    for (int j = 0; mods_.scale_input_d != 0 && operands_.accumulates && j < block.columns; ++j) {
      cells[j] = std::bit_cast<uint32_t>(std::ldexp(std::bit_cast<float>(cells[j]), -mods_.scale_input_d));
    }
  }
  const model::AccumulatorView d{tmem.lane(block.where.lane) + block.where.column, kTmemColumns};
  const size_t row = static_cast<size_t>(block.row), column = static_cast<size_t>(block.column), k = descriptor_.k;
  if (is_packed_fp4(mods_.kind)) {
    model::dot_step_fp4(block.rows, block.columns,
                        {&inputs.a4[row * kPackedRowBytes], &inputs.as[row * kFp4Groups], descriptor_.negate_a},
                        {&inputs.b4[column * kPackedRowBytes], &inputs.bs[column * kFp4Groups], descriptor_.negate_b},
                        descriptor_.scale_format, d, operands_.accumulates);
  } else {
    model::AccumulationRule rule = model::kTcgen05Rule;
    if (descriptor_.f16_accumulators) rule.result = model::ResultFormat::kF16;
    const bool scaled = mods_.scale_vector != 0;
    model::dot_step({block.rows, block.columns, descriptor_.k},
                    {descriptor_.a_format, &inputs.a[row * k], descriptor_.negate_a,
                     scaled ? &inputs.a_exponents[row] : nullptr, scaled ? &inputs.a_nan[row] : nullptr},
                    {descriptor_.b_format, &inputs.b[column * k], descriptor_.negate_b,
                     scaled ? &inputs.b_exponents[column] : nullptr, scaled ? &inputs.b_nan[column] : nullptr},
                    d, operands_.accumulates, rule);
  }
  size_t next = 0;
  for (int i = 0; i < block.rows; ++i) {
    const int lane = block.where.lane + i;
    if (!disabled(lane)) continue;
    std::memcpy(tmem.lane(lane) + block.where.column, &kept[next],
                sizeof(uint32_t) * static_cast<size_t>(block.columns));
    next += static_cast<size_t>(block.columns);
  }
}

}  // namespace ptxrun::ops

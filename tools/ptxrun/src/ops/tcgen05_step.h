// One tcgen05.mma: where its operands lie, what it touches, its arithmetic.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "model/instruction_descriptor.h"
#include "model/tmem_layout.h"
#include "ops/smem_operand.h"
#include "ops/tcgen05.h"

namespace ptxrun::ops {

struct MmaMods {
  model::MmaKind kind;
  uint8_t scale_vector;  // scales a row of a step; 0 without block scaling
  uint8_t cta_group;
  uint8_t mask_words;  // of disable-output-lane: 0, 4 or 8
  uint8_t scale_input_d;
  bool a_in_tmem;
};

// Operands as the issuing thread gave them.
struct MmaOperands {
  uint32_t d = 0;
  uint32_t a_tmem = 0;
  uint64_t a_descriptor = 0, b_descriptor = 0;
  uint32_t descriptor = 0;
  uint32_t a_scales = 0, b_scales = 0;
  bool accumulates = false;
  std::array<uint32_t, 8> disabled_lanes = {};
};

class MmaStep {
 public:
  // Decodes the descriptors; `problems` then tells whether the step can be executed.
  MmaStep(const MmaMods& mods, const MmaOperands& operands, model::Problems& problems);

  const model::InstructionDescriptor& descriptor() const { return descriptor_; }
  // Whether all of its tensor memory belongs to the CTAs of the group; findings otherwise.
  bool check_ranges(Warp& warp, LaneMask lanes) const;
  void announce(check::Issue& issue, Cta& cta) const;
  void execute(Machine& machine, Cta& cta, const Site& site) const;

 private:
  // Rows of the accumulators that are contiguous in lanes, and N columns that are contiguous in columns.
  struct Block {
    int row, rows;
    int column, columns;  // of N
    TmemRange where;
  };
  struct Inputs;

  model::AccumulatorLayout layout() const { return {descriptor_.m, descriptor_.n, mods_.cta_group}; }
  int rows() const { return descriptor_.m / mods_.cta_group; }
  std::vector<Block> blocks() const;
  TmemRange a_range() const;
  // Scales of `count` rows in one partition.
  std::vector<TmemRange> scale_ranges(uint32_t address, int count, int partition) const;
  // Rows of B whose scales a partition holds.
  int scaled_columns() const { return layout().splits_columns() ? descriptor_.n / 2 : descriptor_.n; }

  void fetch(Machine& machine, Cta& cta, const Site& site, Inputs& inputs) const;
  void fetch_a(Machine& machine, Cta& cta, const Site& site, Inputs& inputs) const;
  void fetch_b(Machine& machine, Cta& cta, const Site& site, Inputs& inputs) const;
  void fetch_scales(Machine& machine, Cta& cta, const Site& site, Inputs& inputs) const;
  uint32_t scale_word(Machine& machine, Cta& cta, const Site& site, uint32_t address, int row, int first_partition,
                      int partitions) const;
  void run_block(Cta& cta, const Block& block, const Inputs& inputs) const;

  MmaMods mods_;
  MmaOperands operands_;
  model::InstructionDescriptor descriptor_;
  SmemOperand a_, b_;
};

}  // namespace ptxrun::ops

#include "ops/wgmma_state.h"

#include <cstring>

#include "exec/warp.h"
#include "ops/wgmma.h"

namespace ptxrun::ops {

WgmmaRows::WgmmaRows(Grid& grid) {
  const Kernel& kernel = *grid.config.kernel;
  index_of.assign(kernel.rows, -1);
  for (const Instr& instr : kernel.code) {
    for (const Operand& op : wgmma_registers(instr)) {
      if (op.kind != Operand::Kind::Register || index_of[op.row] >= 0) continue;
      index_of[op.row] = static_cast<int32_t>(operands.size());
      operands.push_back(op);
    }
  }
}

void WgmmaCounts::on_end(Cta& cta) {
  constexpr size_t kThreadsInGroup = kWarpsInGroup * kWarpLanes;
  const size_t threads = cta.grid->config.block.count();
  for (size_t warp = 0; warp < issued.size(); ++warp) {
    const size_t first = warp / kWarpsInGroup * kWarpsInGroup;
    if (warp == first && issued[warp] != 0 && threads < first * kWarpLanes + kThreadsInGroup) {
      cta.machine->report(code::kNotConverged,
                          "a warpgroup of " + std::to_string(threads - first * kWarpLanes) +
                              " threads: wgmma needs all 128, from a warp whose number is a multiple of 4",
                          last[warp]);
    }
    if (issued[warp] == issued[first]) continue;
    const size_t fuller = issued[warp] > issued[first] ? warp : first;
    cta.machine->report(code::kNotConverged,
                        "warps " + std::to_string(first) + " and " + std::to_string(warp) + " of a warpgroup issued " +
                            std::to_string(issued[first]) + " and " + std::to_string(issued[warp]) + " products",
                        last[fuller]);
    return;
  }
}

WgmmaState::WgmmaState(Warp& warp)
    : warp_(warp),
      rows_(warp.cta.grid->ext<WgmmaRows>()),
      order_(warp.machine.async.new_order()),
      contents_(rows_.operands.size()),
      uses_(rows_.operands.size()),
      groups_(1) {}

std::string WgmmaState::describe() const {
  std::string text = "wgmma groups of warp " + std::to_string(warp_.index) + ", pending:";
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (groups_[i].pending != 0) {
      text += " " + std::to_string(groups_[i].pending) + " in group " + std::to_string(i + 1) + ";";
    }
  }
  return text;
}

void WgmmaState::remember(const Operand& op, bool written) {
  Contents& contents = contents_[static_cast<size_t>(rows_.index_of[op.row])];
  std::memcpy(contents.words.data(), warp_.in<uint32_t>(op), sizeof(contents.words));
  contents.written = written;
}

void WgmmaState::fence() {
  fenced_ = true;
  for (const Operand& op : rows_.operands) {
    remember(op, use_of(op).group != 0 || warp_.is_ready(op, warp_.live));
  }
}

bool WgmmaState::changed_since_fence(const Operand& op) const {
  const Contents& contents = contents_[static_cast<size_t>(rows_.index_of[op.row])];
  if (!contents.written && warp_.is_ready(op, warp_.live)) return true;
  return std::memcmp(contents.words.data(), warp_.in<uint32_t>(op), sizeof(contents.words)) != 0;
}

void WgmmaState::check_result(const Operand& op, bool reads, int columns, LaneMask active) {
  const Use& use = use_of(op);
  const std::string& name = warp_.kernel.row_names[op.row];
  if (use.group != 0) {
    if (!use.accumulator) {
      warp_.report(code::kRegisterInFlight, name + " is an accumulator while an earlier wgmma reads it as A", active);
    } else if (use.columns != columns) {
      warp_.report(code::kRegisterInFlight, name + " is in use by a wgmma of another shape without wgmma.wait_group",
                   active);
    }
    return;
  }
  if (changed_since_fence(op)) {
    warp_.report(code::kMissingWgmmaFence, name + " was written after the last wgmma.fence", active);
  }
  if (reads && !warp_.is_ready(op, active)) {
    warp_.report(code::kUninitialisedRegister, name + " is accumulated on, but nothing was written to it", active);
  }
}

void WgmmaState::check_source(const Operand& op, LaneMask active) {
  const Use& use = use_of(op);
  if (use.group != 0) return;  // reading it is the decoder's matter
  if (changed_since_fence(op)) {
    warp_.report(code::kMissingWgmmaFence, warp_.kernel.row_names[op.row] + " was written after the last wgmma.fence",
                 active);
  }
}

void WgmmaState::hold(const Operand& op, const Use& use) {
  Use& now = use_of(op);
  if (now.group == use.group && now.accumulator == use.accumulator) return;
  warp_.hold(op, use.group, "a wgmma in flight", !use.accumulator);
  now = use;
}

uint64_t WgmmaState::issue(std::span<const Operand> results, std::span<const Operand> sources, bool reads_results,
                           int columns, LaneMask active) {
  const uint64_t open = groups_.size();
  if (!fenced_ && !reported_) {
    warp_.report(code::kMissingWgmmaFence, "the warp's first wgmma.mma_async comes without wgmma.fence", active);
    reported_ = true;
  }
  for (const Operand& op : results) {
    if (op.kind != Operand::Kind::Register) continue;
    if (fenced_) check_result(op, reads_results, columns, active);
    hold(op, {open, true, columns});
  }
  for (const Operand& op : sources) {
    if (op.kind != Operand::Kind::Register) continue;
    if (fenced_) check_source(op, active);
    hold(op, {open, false, columns});
  }
  ++group(open).pending;
  WgmmaCounts& counts = warp_.cta.ext<WgmmaCounts>();
  ++counts.issued[warp_.index];
  counts.last[warp_.index] = warp_.site(active);
  return open;
}

void WgmmaState::completed(uint64_t number, std::span<const Operand> results) {
  for (const Operand& op : results) {
    if (op.kind == Operand::Kind::Register) remember(op, true);
  }
  if (--group(number).pending == 0) wake_all();
}

void WgmmaState::commit(check::Epoch epoch) {
  committed_ = groups_.size();
  group(committed_).epoch = epoch;
  groups_.emplace_back();
}

bool WgmmaState::has_ended(uint64_t number) const {
  for (uint64_t i = released_; i < number; ++i) {
    if (groups_[i].pending != 0) return false;
  }
  return true;
}

void WgmmaState::released(uint64_t number) {
  if (number <= released_) return;
  warp_.release(released_ + 1, number);
  for (Use& use : uses_) {
    if (use.group <= number) use = {};
  }
  check::checks(warp_.machine).waited(warp_, group(number).epoch);
  released_ = number;
}

}  // namespace ptxrun::ops

#include "exec/warp.h"

#include <algorithm>
#include <cstring>

#include "exec/machine.h"

namespace ptxrun {
namespace {

constexpr size_t kCacheLine = 64;
constexpr uint32_t kPoison = 0xBAADF00D;
constexpr uint8_t kLocalPoison = 0xCE;

constexpr char kUndefined[] = " is used, but nothing was written to it or to what it was computed from";

// Instructions whose only effect is their result: undefined sources are no fault yet.
bool only_computes(const Instr& instr) {
  return instr.op_class == OpClass::Alu || instr.op_class == OpClass::Fp || instr.op_class == OpClass::Convert;
}

uint32_t* align_line(uint32_t* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  return reinterpret_cast<uint32_t*>((address + kCacheLine - 1) / kCacheLine * kCacheLine);
}

}  // namespace

Warp::Warp(Cta& cta, uint32_t index, LaneMask lanes)
    : cta(cta), machine(*cta.machine), kernel(*cta.grid->config.kernel), index(index), live(lanes) {
  agent.kind = AgentKind::Warp;
  constants_ = kernel.constants.data();
  Group group;
  group.lanes = lanes;
  groups_.push_back(std::move(group));
  site_ = {&kernel, nullptr, cta.grid->index, cta.linear, index, lanes};
}

Warp::~Warp() = default;

// The register file is made when the warp first runs, and handed on when it ends: CTAs that wait cost little.
void Warp::start() {
  const size_t words = size_t{kernel.rows} * kWarpLanes;
  const size_t masks = size_t{kernel.rows} + 2 * size_t{kernel.predicates};
  storage_ = machine.take_registers(words + masks + kCacheLine / sizeof(uint32_t));
  registers_ = align_line(storage_.data());
  row_ready_ = registers_ + words;
  predicates_ = row_ready_ + kernel.rows;
  predicate_ready_ = predicates_ + kernel.predicates;
  std::fill(registers_, registers_ + words, kPoison);
  std::fill(row_ready_, row_ready_ + masks, 0u);
  predicates_[0] = predicate_ready_[0] = kAllLanes;
  for (const StartRow& row : kernel.start_rows) fill_start_row(row);
}

void Warp::fill_start_row(const StartRow& row) {
  uint32_t* words = registers_ + size_t{row.row} * kWarpLanes;
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    const uint64_t value = start_value(row, lane) + static_cast<uint64_t>(row.offset);
    if (row.bits == 64) {
      std::memcpy(words + 2 * lane, &value, sizeof(value));
    } else {
      words[lane] = static_cast<uint32_t>(row.bits == 16 ? value & 0xFFFF : value);
    }
  }
  row_ready_[row.row] = kAllLanes;
}

uint64_t Warp::start_value(const StartRow& row, int lane) const {
  const Grid& grid = *cta.grid;
  const LaunchConfig& config = grid.config;
  const uint32_t thread = index * kWarpLanes + static_cast<uint32_t>(lane);
  const LaneMask bit = LaneMask{1} << lane;
  switch (row.kind) {
    case StartValue::TidX:
      return thread % config.block.x;
    case StartValue::TidY:
      return thread / config.block.x % config.block.y;
    case StartValue::TidZ:
      return thread / config.block.x / config.block.y;
    case StartValue::NtidX:
      return config.block.x;
    case StartValue::NtidY:
      return config.block.y;
    case StartValue::NtidZ:
      return config.block.z;
    case StartValue::CtaidX:
      return cta.index.x;
    case StartValue::CtaidY:
      return cta.index.y;
    case StartValue::CtaidZ:
      return cta.index.z;
    case StartValue::NctaidX:
      return config.grid.x;
    case StartValue::NctaidY:
      return config.grid.y;
    case StartValue::NctaidZ:
      return config.grid.z;
    case StartValue::LaneId:
      return static_cast<uint64_t>(lane);
    case StartValue::WarpId:
      return index;
    case StartValue::NwarpId:
      return cta.warps.size();
    case StartValue::SmId:
      return cta.sm->index;
    case StartValue::NsmId:
      return machine.sms.size();
    case StartValue::GridId:
      return grid.index;
    case StartValue::LanemaskEq:
      return bit;
    case StartValue::LanemaskLe:
      return bit | (bit - 1);
    case StartValue::LanemaskLt:
      return bit - 1;
    case StartValue::LanemaskGe:
      return ~(bit - 1);
    case StartValue::LanemaskGt:
      return ~(bit | (bit - 1));
    case StartValue::ClusterIdX:
      return cta.cluster->index.x;
    case StartValue::ClusterIdY:
      return cta.cluster->index.y;
    case StartValue::ClusterIdZ:
      return cta.cluster->index.z;
    case StartValue::NclusterIdX:
      return config.grid.x / config.cluster.x;
    case StartValue::NclusterIdY:
      return config.grid.y / config.cluster.y;
    case StartValue::NclusterIdZ:
      return config.grid.z / config.cluster.z;
    case StartValue::ClusterCtaidX:
      return cta.cluster_index.x;
    case StartValue::ClusterCtaidY:
      return cta.cluster_index.y;
    case StartValue::ClusterCtaidZ:
      return cta.cluster_index.z;
    case StartValue::ClusterNctaidX:
      return config.cluster.x;
    case StartValue::ClusterNctaidY:
      return config.cluster.y;
    case StartValue::ClusterNctaidZ:
      return config.cluster.z;
    case StartValue::ClusterCtarank:
      return cta.rank;
    case StartValue::ClusterNctarank:
      return config.cluster.count();
    case StartValue::IsExplicitCluster:
      return config.cluster.count() > 1;
    case StartValue::DynamicSmemSize:
      return config.dynamic_shared;
    case StartValue::TotalSmemSize:
      return cta.shared.bytes;
    case StartValue::WarpSize:
      return kWarpLanes;
    case StartValue::GridWorkspaceHigh:
      return grid.workspace >> 32;
    case StartValue::GridWorkspaceLow:
      return grid.workspace & 0xFFFFFFFF;
    case StartValue::SharedAddress:
      return cta.shared.base - kSharedWindow + static_cast<uint64_t>(row.value);
    case StartValue::GlobalAddress:
      return grid.variable_address[static_cast<size_t>(row.value)];
  }
  return 0;
}

Place Warp::local_place(uint64_t address, int lane) {
  if (address >= kernel.local_bytes) return {};
  if (local_.data == nullptr) {
    local_.kind = Region::Kind::Local;
    local_.name = "local";
    local_.bytes = uint64_t{kernel.local_bytes} * kWarpLanes;
    local_.storage.assign(local_.bytes, kLocalPoison);
    local_.data = local_.storage.data();
  }
  return {&local_, static_cast<uint64_t>(lane) * kernel.local_bytes + address};
}

void Warp::report(const char* code, const std::string& message, LaneMask lanes) {
  machine.report(code, message, site(lanes));
}

// Execution of one instruction ---------------------------------------------------------------------------------------

Step Warp::execute(const Instr& instr, LaneMask active) {
  site_.instr = &instr;
  site_.lanes = active;
  check_reads(instr, active);
  const Step step = instr.handler(*this, instr, active);
  mark_writes(instr, active & current_->lanes);
  return step;
}

void Warp::check_reads(const Instr& instr, LaneMask active) {
  if (held_.empty() && only_computes(instr)) return;
  LaneMask unready = 0;
  const uint32_t* row = instr.touched;
  for (const uint32_t* end = row + instr.reads; row != end; ++row) unready |= ~row_ready_[*row];
  row += instr.writes;
  for (const uint32_t* end = row + instr.predicate_reads; row != end; ++row) unready |= ~predicate_ready_[*row];
  if (unready & active) report_unready(instr, active);
  if (held_.empty()) return;
  const uint32_t* written = instr.touched + instr.reads;
  for (int i = 0; i < instr.writes; ++i) {
    if (held_rows_[written[i]]) report_held(instr, written[i], active);
  }
}

// What is computed from undefined values is undefined; of several predicates one that is defined may decide.
void Warp::mark_writes(const Instr& instr, LaneMask active) {
  LaneMask undefined = 0;
  const uint32_t* row = instr.touched;
  if (only_computes(instr)) {
    for (int i = 0; i < instr.reads; ++i) undefined |= ~row_ready_[row[i]];
    const uint32_t* predicates = row + instr.reads + instr.writes;
    LaneMask all = instr.predicate_reads ? kAllLanes : 0;
    for (int i = 0; i < instr.predicate_reads; ++i) all &= ~predicate_ready_[predicates[i]];
    undefined = (undefined | all) & active;
  }
  row += instr.reads;
  for (const uint32_t* end = row + instr.writes; row != end; ++row) {
    row_ready_[*row] = (row_ready_[*row] | active) & ~undefined;
  }
  row += instr.predicate_reads;
  for (const uint32_t* end = row + instr.predicate_writes; row != end; ++row) {
    predicate_ready_[*row] = (predicate_ready_[*row] | active) & ~undefined;
  }
}

void Warp::report_unready(const Instr& instr, LaneMask active) {
  const uint32_t* row = instr.touched;
  for (int i = 0; i < instr.reads; ++i, ++row) {
    const LaneMask bad = active & ~row_ready_[*row];
    if (bad == 0) continue;
    if (!held_rows_.empty() && held_rows_[*row]) {
      report_held(instr, *row, bad);
    } else if (!only_computes(instr)) {
      report(code::kUninitialisedRegister, kernel.row_names[*row] + kUndefined, bad);
    } else {
      continue;
    }
    row_ready_[*row] |= bad;  // one finding a register
  }
  row += instr.writes;
  for (int i = 0; i < instr.predicate_reads; ++i, ++row) {
    const LaneMask bad = active & ~predicate_ready_[*row];
    if (bad == 0 || only_computes(instr)) continue;
    report(code::kUninitialisedRegister, std::string("a predicate") + kUndefined, bad);
    predicate_ready_[*row] |= bad;
  }
}

void Warp::copy_readiness(const Instr& instr, const Operand& from, const Operand& to, LaneMask active) {
  LaneMask ready = from.kind == Operand::Kind::Register ? row_ready_[from.row] : kAllLanes;
  if (!held_.empty()) {
    if ((active & ~ready) && is_held(from)) {
      report_held(instr, from.row, active & ~ready);
      ready = row_ready_[from.row] |= active;  // one finding a register
    }
    if (is_held(to)) report_held(instr, to.row, active);
  }
  row_ready_[to.row] = (row_ready_[to.row] & ~active) | (ready & active);
}

void Warp::report_held(const Instr& instr, uint32_t row, LaneMask active) {
  const bool reads = std::find(instr.touched, instr.touched + instr.reads, row) != instr.touched + instr.reads;
  for (const Held& held : held_) {
    if (held.row != row) continue;
    report(code::kRegisterInFlight,
           kernel.row_names[row] + (reads ? " is read" : " is written") + " while " + held.what + " may still use it",
           active);
    return;
  }
}

void Warp::hold(const Operand& op, uint64_t tag, const char* what, bool readable) {
  if (op.kind != Operand::Kind::Register) return;
  if (held_rows_.empty()) held_rows_.resize(kernel.rows);
  held_.push_back({op.row, readable, tag, what});
  ++held_rows_[op.row];
  if (!readable) row_ready_[op.row] = 0;
}

void Warp::release(uint64_t first_tag, uint64_t last_tag) {
  std::erase_if(held_, [&](const Held& held) {
    if (held.tag < first_tag || held.tag > last_tag) return false;
    --held_rows_[held.row];
    if (!held.readable && held_rows_[held.row] == 0) row_ready_[held.row] = kAllLanes;
    return true;
  });
}

}  // namespace ptxrun

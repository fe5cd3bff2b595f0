// wgmma: asynchronous products of a warpgroup on f16, bf16 and fp8. Each of its warps computes its own 16 rows.
#include "ops/wgmma.h"

#include <string>
#include <vector>

#include "decode/decoder.h"
#include "decode/registry.h"
#include "exec/warp.h"
#include "model/fragments.h"
#include "model/mma_arithmetic.h"
#include "ops/mma_counters.h"
#include "ops/smem_operand.h"
#include "ops/wgmma_state.h"

namespace ptxrun::ops {

namespace {

constexpr int kWarpRows = 16;
constexpr int kRows = 64;
constexpr int kRowBits = 256;  // of a row along K
constexpr int kMaxColumns = 256;
constexpr int kARegisters = 4;

struct Mods {
  const model::FloatFormat* a_format;
  const model::FloatFormat* b_format;
  uint16_t columns;
  uint16_t results;  // accumulator registers of a thread
  uint8_t depth;
  uint8_t sources;  // registers with A; 0: A lies in shared memory
  bool f16_accumulators;
  bool negate_a, negate_b;
  bool transpose_a, transpose_b;
};

struct WaitMods {
  uint64_t allowed;  // groups that may still be pending
};

std::string step_name(const Mods& mods) {
  return "wgmma.m64n" + std::to_string(mods.columns) + "k" + std::to_string(mods.depth);
}

class WgmmaOp : public AsyncOp {
 public:
  WgmmaOp(Warp& warp, const Instr& instr, const SmemOperand& a, const SmemOperand& b, bool accumulate, uint64_t group)
      : warp_(warp), instr_(instr), a_(a), b_(b), accumulate_(accumulate), group_(group) {
    site = warp.site();
    cta = &warp.cta;
    order = warp.ext<WgmmaState>().order();
  }

  std::string describe() const override {
    return "wgmma.mma_async, group " + std::to_string(group_) + " of warp " + std::to_string(warp_.index);
  }

  void complete(Machine& machine) override {
    if (warp_.live == 0) return;  // its registers are gone
    const Mods& mods = instr_.mods<Mods>();
    std::vector<uint16_t> a(kWarpRows * mods.depth), b(size_t{mods.columns} * mods.depth);
    std::vector<uint32_t> d(kWarpRows * size_t{mods.columns});
    if (mods.sources != 0) {
      read_a_registers(mods, a.data());
    } else {
      a_.fetch(machine, cta->shared, site, a.data());
    }
    b_.fetch(machine, cta->shared, site, b.data());
    move_accumulators(mods, d.data(), false);
    model::dot_step({kWarpRows, mods.columns, mods.depth}, {mods.a_format, a.data(), mods.negate_a},
                    {mods.b_format, b.data(), mods.negate_b}, {d.data(), mods.columns}, accumulate_, rule(mods));
    move_accumulators(mods, d.data(), true);
    warp_.ext<WgmmaState>().completed(group_, instr_.ops(0, mods.results));
  }

 private:
  static model::AccumulationRule rule(const Mods& mods) {
    model::AccumulationRule rule = mods.a_format->width() == 8 ? model::kHopperFp8WgmmaRule : model::kHopperRule;
    if (mods.f16_accumulators) rule.result = model::ResultFormat::kF16;
    return rule;
  }

  void read_a_registers(const Mods& mods, uint16_t* a) const {
    const int width = mods.a_format->width(), per_register = 32 / width;
    const uint32_t mask = (1u << width) - 1;
    for (int index = 0; index < kARegisters; ++index) {
      const uint32_t* words = warp_.in<uint32_t>(instr_.op(mods.results + index));
      for (int lane = 0; lane < kWarpLanes; ++lane) {
        const model::MatrixIndex at = model::a_fragment(lane, index, per_register);
        for (int i = 0; i < per_register; ++i) {
          a[at.row * mods.depth + at.column + i] = static_cast<uint16_t>((words[lane] >> (i * width)) & mask);
        }
      }
    }
  }

  void move_accumulators(const Mods& mods, uint32_t* d, bool to_registers) {
    const int per_register = mods.f16_accumulators ? 2 : 1;
    for (int index = 0; index < mods.results * per_register; ++index) {
      const Operand& op = instr_.op(index / per_register);
      if (op.kind != Operand::Kind::Register) continue;
      uint32_t* words = warp_.out<uint32_t>(op);
      const int half = 16 * (index % per_register);
      for (int lane = 0; lane < kWarpLanes; ++lane) {
        const model::MatrixIndex at = model::accumulator_fragment(lane, index);
        uint32_t& element = d[at.row * mods.columns + at.column];
        if (!to_registers) {
          element = words[lane] >> half;
        } else if (per_register == 1) {
          words[lane] = element;
        } else {
          words[lane] = (words[lane] & ~(0xFFFFu << half)) | element << half;
        }
      }
    }
  }

  Warp& warp_;
  const Instr& instr_;
  SmemOperand a_, b_;
  bool accumulate_;
  uint64_t group_;
};

// The value that all lanes must have in common.
uint64_t uniform(Warp& warp, const Operand& op, LaneMask active, const char* what) {
  const uint64_t* values = warp.in<uint64_t>(op);
  const uint64_t value = values[std::countr_zero(active)];
  bool same = true;
  for_lanes(active, [&](int lane) { same = same && values[lane] == value; });
  if (!same) warp.report(code::kBadOperand, std::string(what) + " differs among the lanes of the warp", active);
  return value;
}

SmemOperand operand(Warp& warp, LaneMask active, uint64_t descriptor, bool transposed, int first_row, int rows,
                    int all_rows, const Mods& mods, int element_bits) {
  model::Problems problems;
  const model::SmemMatrix matrix = model::decode_wgmma_descriptor(descriptor, problems);
  const model::Major major = transposed ? model::Major::kMN : model::Major::kK;
  if (problems.empty()) model::check_smem_matrix(matrix, major, all_rows, mods.depth, element_bits, problems);
  report_problems(warp, problems, active);
  return SmemOperand(matrix, major, first_row, rows, mods.depth, element_bits);
}

Step run_mma_async(Warp& warp, const Instr& instr, LaneMask active) {
  const Mods& mods = instr.mods<Mods>();
  const int a_at = mods.results, b_at = a_at + (mods.sources != 0 ? mods.sources : 1);
  const LaneMask scale_d = warp.predicate(instr.op(b_at + 1)) & active;
  if (scale_d != 0 && scale_d != active) {
    warp.report(code::kBadOperand, "scale-d differs among the lanes of the warp", active);
  }
  check::Checks& checks = check::checks(warp.machine);
  check::Issue issue = checks.issue(warp, checks.pipe(warp, check::PipeKind::Wgmma), Proxy::Async);
  SmemOperand a, b;
  if (mods.sources == 0) {
    const int first_row = kWarpRows * static_cast<int>(warp.index % kWarpsInGroup);
    a = operand(warp, active, uniform(warp, instr.op(a_at), active, "the descriptor of A"), mods.transpose_a, first_row,
                kWarpRows, kRows, mods, mods.a_format->width());
    a.announce(issue, warp.cta.shared);
  }
  b = operand(warp, active, uniform(warp, instr.op(b_at), active, "the descriptor of B"), mods.transpose_b, 0,
              mods.columns, mods.columns, mods, mods.b_format->width());
  b.announce(issue, warp.cta.shared);
  const uint64_t group = warp.ext<WgmmaState>().issue(instr.ops(0, mods.results), instr.ops(a_at, mods.sources),
                                                      scale_d != 0, mods.columns, active);
  warp.machine.async.issue(std::make_unique<WgmmaOp>(warp, instr, a, b, scale_d != 0, group));
  if (warp.index % kWarpsInGroup == 0) count_step(warp, step_name(mods));
  return Step::Next;
}

Step run_fence(Warp& warp, const Instr&, LaneMask) {
  warp.ext<WgmmaState>().fence();
  return Step::Next;
}

Step run_commit(Warp& warp, const Instr&, LaneMask) {
  check::Checks& checks = check::checks(warp.machine);
  warp.ext<WgmmaState>().commit(checks.pipe(warp, check::PipeKind::Wgmma).close());
  return Step::Next;
}

Step run_wait(Warp& warp, const Instr& instr, LaneMask active) {
  WgmmaState& state = warp.ext<WgmmaState>();
  const uint64_t group = state.group_to_wait_for(instr.mods<WaitMods>().allowed);
  if (!state.has_ended(group)) {
    warp.park(state, active);
    return Step::Next;
  }
  state.released(group);
  return Step::Next;
}

struct ElementType {
  const char* name;
  const model::FloatFormat* format;
};
constexpr ElementType kElementTypes[] = {
    {"f16", &model::kF16}, {"bf16", &model::kBf16}, {"e4m3", &model::kE4m3}, {"e5m2", &model::kE5m2}};

const model::FloatFormat* take_format(Decoder& d) {
  const std::string_view word = d.modifiers().take_front();
  for (const ElementType& type : kElementTypes) {
    if (word == type.name) return type.format;
  }
  d.unknown();
}

// m64nNkK
void take_shape(Decoder& d, Mods& mods) {
  const std::string_view shape = d.modifiers().take_front();
  const size_t k_at = shape.find('k');
  if (!shape.starts_with("m64n") || k_at == std::string_view::npos) d.unknown();
  const auto number = [&](std::string_view digits) {
    int value = 0;
    for (const char digit : digits) {
      if (digit < '0' || digit > '9' || value > kMaxColumns) d.unknown();
      value = 10 * value + (digit - '0');
    }
    return value;
  };
  mods.columns = static_cast<uint16_t>(number(shape.substr(4, k_at - 4)));
  mods.depth = static_cast<uint8_t>(number(shape.substr(k_at + 1)));
  if (mods.columns == 0 || mods.columns > kMaxColumns || mods.columns % 8 != 0) d.unknown();
}

bool take_sign(Decoder& d, size_t at) {
  const int64_t scale = d.immediate(d.operand(at));
  if (scale != 1 && scale != -1) d.unknown("scales of A and B are 1 or -1");
  return scale == -1;
}

// D, A and B, scale-d, then the immediates: signs of A and B, and for 16-bit elements which of them are transposed.
void decode_operands(Decoder& d, Mods& mods) {
  d.untracked_vector(d.operand(0), 32, mods.results);
  const bool a_in_registers = d.operand(1).kind == ast::OperandKind::Vector;
  if (a_in_registers) {
    mods.sources = kARegisters;
    d.read_vector(d.operand(1), 32, kARegisters);
  } else {
    d.read(d.operand(1), 64);
  }
  d.read(d.operand(2), 64);
  d.read_predicate(d.operand(3));
  mods.negate_a = take_sign(d, 4);
  mods.negate_b = take_sign(d, 5);
  size_t operands = 6;
  if (mods.a_format->width() == 16) {
    if (!a_in_registers) mods.transpose_a = d.immediate(d.operand(operands++)) != 0;
    mods.transpose_b = d.immediate(d.operand(operands++)) != 0;
  }
  d.finish(operands);
}

void decode_mma_async(Decoder& d, Instr& out) {
  out.op_class = OpClass::Mma;
  out.convergence = Convergence::Aligned;
  Modifiers& modifiers = d.modifiers();
  modifiers.take("mma_async");
  if (!modifiers.take("sync") || !modifiers.take("aligned")) d.unknown();
  Mods mods{};
  take_shape(d, mods);
  const int d_type = modifiers.take_one({"f32", "f16"});
  mods.a_format = take_format(d);
  mods.b_format = take_format(d);
  mods.f16_accumulators = d_type == 1;
  const int width = mods.a_format->width();
  if (d_type < 0 || mods.b_format->width() != width || mods.depth * width != kRowBits) d.unknown();
  if (width == 16 && mods.a_format != mods.b_format) d.unknown();
  if (mods.f16_accumulators && mods.a_format == &model::kBf16) d.unknown();
  mods.results = mods.columns / (mods.f16_accumulators ? 4 : 2);
  decode_operands(d, mods);
  out.set_mods(mods);
  out.handler = run_mma_async;
}

void decode_sync(Decoder& d, Instr& out) {
  out.op_class = OpClass::Mma;
  out.convergence = Convergence::Aligned;
  const int kind = d.modifiers().take_one({"fence", "commit_group", "wait_group"});
  if (!d.modifiers().take("sync") || !d.modifiers().take("aligned")) d.unknown();
  constexpr Handler kHandlers[] = {run_fence, run_commit, run_wait};
  out.handler = kHandlers[kind];
  if (kind == 2) out.set_mods(WaitMods{static_cast<uint64_t>(d.immediate(d.operand(0)))});
  d.finish(kind == 2 ? 1 : 0);
}

const Family mma_family({"wgmma.mma_async"}, decode_mma_async);
const Family sync_family({"wgmma.fence", "wgmma.commit_group", "wgmma.wait_group"}, decode_sync);

}  // namespace

std::span<const Operand> wgmma_registers(const Instr& instr) {
  if (instr.handler != run_mma_async) return {};
  const Mods& mods = instr.mods<Mods>();
  return instr.ops(0, mods.results + mods.sources);
}

}  // namespace ptxrun::ops

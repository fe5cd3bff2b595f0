// tcgen05.mma: decoding, checks at issue, and the asynchronous operation. The arithmetic is in tcgen05_step.
#include <memory>
#include <string>

#include "decode/registry.h"
#include "exec/warp.h"
#include "ops/mma_counters.h"
#include "ops/spaces.h"
#include "ops/tcgen05_step.h"

namespace ptxrun::ops {

namespace {

using model::MmaKind;

constexpr const char* kKindNames[] = {"f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4"};

class MmaOp : public AsyncOp {
 public:
  MmaOp(Warp& warp, const MmaStep& step) : step_(step) {
    site = warp.site();
    cta = &warp.cta;
    order = cta->ext<Tcgen05Cta>().pipe;
  }
  std::string describe() const override {
    const model::InstructionDescriptor& shape = step_.descriptor();
    return "tcgen05.mma " + std::to_string(shape.m) + "x" + std::to_string(shape.n) + "x" + std::to_string(shape.k);
  }
  void complete(Machine& machine) override { step_.execute(machine, *cta, site); }

 private:
  MmaStep step_;
};

// Operands in the order of decode_operands.
MmaOperands read_operands(const Warp& warp, const Instr& instr, int lane) {
  const MmaMods& mods = instr.mods<MmaMods>();
  const auto word = [&](int i) { return static_cast<uint32_t>(lane_value(warp, instr.op(i), lane)); };
  MmaOperands operands;
  operands.d = word(0);
  if (mods.a_in_tmem) {
    operands.a_tmem = word(1);
  } else {
    operands.a_descriptor = lane_value(warp, instr.op(1), lane);
  }
  operands.b_descriptor = lane_value(warp, instr.op(2), lane);
  operands.descriptor = word(3);
  int next = 4;
  if (mods.scale_vector != 0) {
    operands.a_scales = word(next++);
    operands.b_scales = word(next++);
  }
  for (int i = 0; i < mods.mask_words; ++i) operands.disabled_lanes[static_cast<size_t>(i)] = word(next++);
  operands.accumulates = (warp.predicate(instr.op(next)) >> lane & 1) != 0;
  return operands;
}

void issue_mma(Warp& warp, const Instr& instr, int lane) {
  const MmaMods& mods = instr.mods<MmaMods>();
  const LaneMask active = warp.site(LaneMask{1} << lane).lanes;
  if (!check_cta_group(warp, mods.cta_group, active)) return;
  model::Problems problems;
  const MmaStep step(mods, read_operands(warp, instr, lane), problems);
  report_problems(warp, problems, active);
  if (!problems.empty() || !step.check_ranges(warp, active)) return;
  check::Checks& checks = check::checks(warp.machine);
  check::Issue issue =
      checks.issue(warp, checks.pipe(warp, check::PipeKind::Tcgen05, static_cast<uint32_t>(lane)), Proxy::Async, true);
  step.announce(issue, warp.cta);
  const model::InstructionDescriptor& shape = step.descriptor();
  count_step(warp, std::string("tcgen05.") + kKindNames[static_cast<int>(mods.kind)] + ".m" + std::to_string(shape.m) +
                       "n" + std::to_string(shape.n) + "k" + std::to_string(shape.k));
  warp.machine.async.issue(std::make_unique<MmaOp>(warp, step));
}

Step run_mma(Warp& warp, const Instr& instr, LaneMask active) {
  for_lanes(active, [&](int lane) { issue_mma(warp, instr, lane); });
  return Step::Next;
}

// The number of scales a row, checked against the kind.
uint8_t take_scale_vector(Decoder& d, MmaKind kind) {
  if (!model::is_block_scaled(kind)) return 0;
  if (!d.modifiers().take("block_scale")) d.unknown();
  const int vector = d.modifiers().take_one({"scale_vec::1X", "scale_vec::2X", "scale_vec::4X"});
  const int block = d.modifiers().take_one({"block16", "block32"});
  if (vector >= 0 && block >= 0) d.unknown();
  const int of_blocks = kind == MmaKind::kMxf8f6f4 ? 1 : block == 0 ? 4 : 2;
  const int scales = vector >= 0 ? 1 << vector : of_blocks;
  const bool unnamed = vector < 0 && block < 0;
  const bool legal = kind == MmaKind::kMxf8f6f4 ? scales == 1 && block != 0
                     : kind == MmaKind::kMxf4   ? scales == 2
                                                : scales >= 2 && !unnamed;
  if (!legal) d.unknown("the scale vector does not suit the kind");
  return static_cast<uint8_t>(scales);
}

void decode_operands(Decoder& d, MmaMods& mods) {
  mods.a_in_tmem = d.is_address(d.operand(1));
  d.address(d.operand(0));
  if (mods.a_in_tmem) {
    d.address(d.operand(1));
  } else {
    d.read(d.operand(1), 64);
  }
  d.read(d.operand(2), 64);
  d.read(d.operand(3), 32);
  size_t next = 4;
  if (mods.scale_vector != 0) {
    d.address(d.operand(next++));
    d.address(d.operand(next++));
  } else if (d.operand(next).kind == ast::OperandKind::Vector) {
    mods.mask_words = static_cast<uint8_t>(4 * mods.cta_group);
    d.read_vector(d.operand(next++), 32, mods.mask_words);
  }
  d.read_predicate(d.operand(next++));
  if (mods.kind == MmaKind::kF16 && next < d.operand_count()) {
    const int64_t scale = d.immediate(d.operand(next++));
    if (scale < 0 || scale > 15) d.unknown("scale-input-d must be in 0..15");
    mods.scale_input_d = static_cast<uint8_t>(scale);
  }
  d.finish(next);
}

void decode_mma(Decoder& d, Instr& out) {
  out.op_class = OpClass::Mma;
  Modifiers& modifiers = d.modifiers();
  modifiers.take("mma");
  MmaMods mods{};
  mods.cta_group = static_cast<uint8_t>(take_cta_group(d));
  constexpr MmaKind kKinds[] = {MmaKind::kF16, MmaKind::kF8f6f4, MmaKind::kMxf8f6f4, MmaKind::kMxf4,
                                MmaKind::kMxf4nvf4};
  const int kind = modifiers.take_one({"kind::f16", "kind::f8f6f4", "kind::mxf8f6f4", "kind::mxf4", "kind::mxf4nvf4"});
  if (kind < 0) d.unknown("this kind is not modelled");
  mods.kind = kKinds[kind];
  mods.scale_vector = take_scale_vector(d, mods.kind);
  // The collector holds copies of A: it changes timing, and sources must stay as they are until completion anyway.
  modifiers.take_one({"collector::a::fill", "collector::a::use", "collector::a::lastuse", "collector::a::discard"});
  decode_operands(d, mods);
  out.set_mods(mods);
  out.handler = run_mma;
}

const Family mma_family({"tcgen05.mma"}, decode_mma);

}  // namespace

}  // namespace ptxrun::ops

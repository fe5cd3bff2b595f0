// griddepcontrol, setmaxnreg: a launch beside its predecessor, and the CTA's pool of registers.
#include "check/checks.h"
#include "check/finding.h"
#include "decode/decoder.h"
#include "decode/registry.h"
#include "exec/warp.h"
#include "ops/mbarrier.h"

namespace ptxrun::ops {

namespace {

Step run_launch_dependents(Warp& warp, const Instr&, LaneMask) {
  warp.machine.cta_launched_dependents(warp.cta, &warp);
  return Step::Next;
}

// All launches before this one: the predecessor may itself have ended without waiting for its own.
Step run_wait(Warp& warp, const Instr&, LaneMask active) {
  Grid& grid = *warp.cta.grid;
  for (uint32_t i = 0; i < grid.index; ++i) {
    Grid& earlier = *warp.machine.grids[i];
    if (earlier.done) continue;
    warp.park(earlier.completion, active);
    return Step::Next;
  }
  if (grid.index > 0) warp.machine.checker->grid_dependency(warp, *warp.machine.grids[grid.index - 1]);
  return Step::Next;
}

void decode_griddepcontrol(Decoder& d, Instr& out) {
  out.op_class = OpClass::Special;
  const int kind = d.modifiers().take_one({"launch_dependents", "wait"});
  if (kind < 0) d.unknown();
  d.finish(0);
  out.handler = kind == 0 ? run_launch_dependents : run_wait;
}

constexpr uint32_t kStep = 8, kMinimum = 24, kMaximum = 256;

// Registers of a CTA that no warp holds: setmaxnreg.dec gives, .inc takes.
struct RegisterPool : Extension<Cta>, WaitObject {
  explicit RegisterPool(Cta& cta) : cta(cta) {}
  Cta& cta;
  int64_t free = 0;  // registers of one lane
  std::string describe() const override {
    return "registers of CTA " + std::to_string(cta.linear) + ", " + std::to_string(free) + " a lane in the pool";
  }
};

struct WarpRegisters : Extension<Warp> {
  explicit WarpRegisters(Warp& warp) : count(warp.cta.grid->config.registers) {}
  uint32_t count;
};

struct RegisterMods {
  uint32_t count;
  bool increases;
};

Step run_setmaxnreg(Warp& warp, const Instr& instr, LaneMask active) {
  const RegisterMods& mods = instr.mods<RegisterMods>();
  if (warp.cta.grid->config.registers == 0) return Step::Next;
  RegisterPool& pool = warp.cta.ext<RegisterPool>();
  uint32_t& held = warp.ext<WarpRegisters>().count;
  if (mods.increases ? mods.count < held : mods.count > held) {
    warp.report(code::kRegisterPool,
                "setmaxnreg to " + std::to_string(mods.count) + " in a warp that has " + std::to_string(held), active);
    return Step::Next;
  }
  if (mods.increases && mods.count - held > pool.free) {
    warp.park(pool, active);
    return Step::Next;
  }
  pool.free += static_cast<int64_t>(held) - mods.count;
  held = mods.count;
  if (!mods.increases) {
    note_progress(warp.machine);
    pool.wake_all();
  }
  return Step::Next;
}

void decode_setmaxnreg(Decoder& d, Instr& out) {
  out.op_class = OpClass::Special;
  RegisterMods mods{};
  const int kind = d.modifiers().take_one({"inc", "dec"});
  if (kind < 0 || !d.modifiers().take("sync") || !d.modifiers().take("aligned") || !d.modifiers().take("u32")) {
    d.unknown();
  }
  mods.increases = kind == 0;
  mods.count = static_cast<uint32_t>(d.immediate(d.operand(0)));
  if (mods.count < kMinimum || mods.count > kMaximum || mods.count % kStep)
    d.unknown("24 to 256 registers, in steps of 8");
  d.finish(1);
  out.set_mods(mods);
  out.convergence = Convergence::Aligned;
  out.handler = run_setmaxnreg;
}

const Family grid_family({"griddepcontrol"}, decode_griddepcontrol);
const Family register_family({"setmaxnreg"}, decode_setmaxnreg);

}  // namespace

}  // namespace ptxrun::ops

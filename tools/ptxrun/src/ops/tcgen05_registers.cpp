// tcgen05.ld, tcgen05.st and their waits: tensor memory from and to the registers of a warp.
#include <bit>
#include <string>

#include "decode/registry.h"
#include "exec/warp.h"
#include "model/tmem_layout.h"
#include "ops/tcgen05.h"

namespace ptxrun::ops {

namespace {

using model::TmemShape;

constexpr int kWarpsInGroup = 4;

struct Mods {
  TmemShape shape;
  uint16_t registers;
  int32_t half_split;  // of 16x32bx2
  bool packed;         // .pack::16b, .unpack::16b: two columns a register
  bool stores;
};

// Loads or stores of a warp that are pending.
template <int kKind>
struct Pending : Extension<Warp>, WaitObject {
  explicit Pending(Warp& warp) : warp(warp), order(warp.machine.async.new_order()) {}
  std::string describe() const override {
    return std::string(kKind == 0 ? "tcgen05.ld" : "tcgen05.st") + " of warp " + std::to_string(warp.index) + ": " +
           std::to_string(issued - completed) + " pending";
  }
  Warp& warp;
  OrderKey order;
  uint64_t issued = 0, completed = 0;
};
using PendingLoads = Pending<0>;
using PendingStores = Pending<1>;

// Lanes and columns relative to the address, as one rectangle or, of 16x32bx2, two.
std::vector<TmemRange> ranges(const Mods& mods, uint32_t address) {
  const int wide = mods.packed ? 2 : 1;
  TmemRange range{static_cast<int>(tmem_lane(address)), 16, static_cast<int>(tmem_column(address)), 0};
  switch (mods.shape) {
    case TmemShape::k32x32b:
      range.lanes = model::kTmemPartition;
      range.columns = mods.registers * wide;
      return {range};
    case TmemShape::k16x32bx2: {
      range.columns = mods.registers * wide;
      TmemRange second = range;
      second.column += mods.half_split * wide;
      return {range, second};
    }
    default:
      range.columns = 2 * mods.registers * wide;
      return {range};
  }
}

bool check_lanes(Warp& warp, const Mods& mods, uint32_t address, LaneMask active) {
  const auto lane = static_cast<int>(tmem_lane(address));
  const int first = model::kTmemPartition * static_cast<int>(warp.index % kWarpsInGroup);
  if (lane == first || (mods.shape != TmemShape::k32x32b && lane == first + 16)) return true;
  warp.report(code::kTmemAccess,
              "the address names lane " + std::to_string(lane) + ", but warp " + std::to_string(warp.index) +
                  " reaches lanes " + std::to_string(first) + ".." + std::to_string(first + model::kTmemPartition - 1),
              active);
  return false;
}

class RegisterOp : public AsyncOp {
 public:
  RegisterOp(Warp& warp, const Instr& instr, uint32_t address) : warp_(warp), instr_(instr), address_(address) {
    site = warp.site();
    cta = &warp.cta;
  }

 protected:
  // Calls f(cell, register index, thread, half); half 1 is the second column of a packed register.
  template <class F>
  void for_cells(F&& f) const {
    const Mods& mods = instr_.mods<Mods>();
    TmemState& tmem = cta->sm->ext<TmemState>();
    const auto lane = static_cast<int>(tmem_lane(address_)), column = static_cast<int>(tmem_column(address_));
    for (int index = 0; index < mods.registers; ++index) {
      for (int thread = 0; thread < kWarpLanes; ++thread) {
        const model::TmemCell cell = model::register_cell(mods.shape, thread, index, mods.half_split);
        uint32_t* cells = tmem.lane(lane + cell.lane) + column;
        if (!mods.packed) {
          f(cells[cell.column], index, thread, 0);
        } else {
          for (int half = 0; half < 2; ++half) f(cells[2 * cell.column + half], index, thread, half);
        }
      }
    }
  }

  Warp& warp_;
  const Instr& instr_;
  uint32_t address_;
};

// The registers are written at issue: machine code keeps the order of a register's writer and readers, so an early use
// gets the value. That the PTX lacks a wait is a finding nevertheless.
class LoadOp : public RegisterOp {
 public:
  LoadOp(Warp& warp, const Instr& instr, uint32_t address) : RegisterOp(warp, instr, address) {
    order = warp.ext<PendingLoads>().order;
    const bool packed = instr.mods<Mods>().packed;
    for_cells([&](const uint32_t& cell, int index, int thread, int half) {
      const Operand& op = instr.op(index + 1);
      if (op.kind != Operand::Kind::Register) return;
      uint32_t& word = warp.out<uint32_t>(op)[thread];
      word = !packed ? cell : half == 0 ? cell & 0xFFFF : word | cell << 16;
    });
  }
  std::string describe() const override { return "tcgen05.ld of warp " + std::to_string(warp_.index); }

  void complete(Machine&) override {
    if (warp_.live == 0) return;
    PendingLoads& pending = warp_.ext<PendingLoads>();
    ++pending.completed;
    pending.wake_all();
  }
};

class StoreOp : public RegisterOp {
 public:
  StoreOp(Warp& warp, const Instr& instr, uint32_t address) : RegisterOp(warp, instr, address) {
    order = warp.ext<PendingStores>().order;
    const int registers = instr.mods<Mods>().registers;
    values_.resize(size_t{kWarpLanes} * registers);
    for (int index = 0; index < registers; ++index) {
      const uint32_t* words = warp.in<uint32_t>(instr.op(index + 1));
      for (int lane = 0; lane < kWarpLanes; ++lane) values_[index * kWarpLanes + lane] = words[lane];
    }
  }
  std::string describe() const override { return "tcgen05.st of warp " + std::to_string(warp_.index); }

  void complete(Machine&) override {
    const bool packed = instr_.mods<Mods>().packed;
    for_cells([&](uint32_t& cell, int index, int thread, int half) {
      const uint32_t word = values_[index * kWarpLanes + thread];
      cell = !packed ? word : (word >> (16 * half)) & 0xFFFF;
    });
    if (warp_.live == 0) return;
    PendingStores& pending = warp_.ext<PendingStores>();
    ++pending.completed;
    pending.wake_all();
  }

 private:
  std::vector<uint32_t> values_;  // the registers at issue
};

Step run_move(Warp& warp, const Instr& instr, LaneMask active) {
  const Mods& mods = instr.mods<Mods>();
  const auto address = static_cast<uint32_t>(uniform_value(warp, instr.op(0), active, "the address"));
  if (!check_lanes(warp, mods, address, active)) return Step::Next;
  check::Checks& checks = check::checks(warp.machine);
  const auto kind = mods.stores ? check::PipeKind::TmemStore : check::PipeKind::TmemLoad;
  check::Issue issue = checks.issue(warp, checks.pipe(warp, kind), Proxy::Async);
  for (const TmemRange& range : ranges(mods, address)) {
    if (!check_tmem(warp, warp.cta, range, mods.stores ? "the destination" : "the source", active)) return Step::Next;
    if (mods.stores) {
      announce_write(issue, *warp.cta.sm, range);
    } else {
      announce_read(issue, *warp.cta.sm, range);
    }
  }
  if (mods.stores) {
    ++warp.ext<PendingStores>().issued;
    warp.machine.async.issue(std::make_unique<StoreOp>(warp, instr, address));
    return Step::Next;
  }
  for (const Operand& op : instr.ops(1, mods.registers)) {
    if (op.kind != Operand::Kind::Register || !warp.is_held(op)) continue;
    warp.report(code::kRegisterInFlight,
                warp.kernel.row_names[op.row] + " is the destination of a tcgen05.ld without tcgen05.wait::ld", active);
    break;
  }
  const uint64_t tag = ++warp.ext<PendingLoads>().issued;
  for (const Operand& op : instr.ops(1, mods.registers))
    warp.hold(op, tag, "a tcgen05.ld without tcgen05.wait::ld", false);
  warp.machine.async.issue(std::make_unique<LoadOp>(warp, instr, address));
  return Step::Next;
}

template <class PendingOps>
Step wait(Warp& warp, LaneMask active, check::PipeKind kind, bool releases) {
  PendingOps& pending = warp.ext<PendingOps>();
  if (pending.completed != pending.issued) {
    warp.park(pending, active);
    return Step::Next;
  }
  if (releases) warp.release(1, pending.issued);
  check::Checks& checks = check::checks(warp.machine);
  checks.waited(warp, checks.pipe(warp, kind).close());
  return Step::Next;
}

Step run_wait_loads(Warp& warp, const Instr&, LaneMask active) {
  return wait<PendingLoads>(warp, active, check::PipeKind::TmemLoad, true);
}

Step run_wait_stores(Warp& warp, const Instr&, LaneMask active) {
  return wait<PendingStores>(warp, active, check::PipeKind::TmemStore, false);
}

TmemShape take_shape(Decoder& d) {
  constexpr TmemShape kShapes[] = {TmemShape::k32x32b, TmemShape::k16x64b, TmemShape::k16x128b, TmemShape::k16x256b,
                                   TmemShape::k16x32bx2};
  const int shape = d.modifiers().take_one({"32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2"});
  if (shape < 0) d.unknown();
  return kShapes[shape];
}

void decode_move(Decoder& d, Instr& out) {
  out.op_class = OpClass::Tmem;
  out.convergence = Convergence::Aligned;
  Modifiers& modifiers = d.modifiers();
  Mods mods{};
  mods.stores = modifiers.take_one({"ld", "st"}) == 1;
  if (!modifiers.take("sync") || !modifiers.take("aligned")) d.unknown();
  mods.shape = take_shape(d);
  const int repeat = modifiers.take_one({"x1", "x2", "x4", "x8", "x16", "x32", "x64", "x128"});
  if (repeat < 0 || !model::is_legal_repeat(mods.shape, 1 << repeat)) d.unknown();
  mods.registers = static_cast<uint16_t>(model::registers_per_thread(mods.shape, 1 << repeat));
  mods.packed = modifiers.take(mods.stores ? "unpack::16b" : "pack::16b");
  if (!modifiers.take("b32")) d.unknown();
  const ast::Operand& address = d.operand(mods.stores ? 0 : 1);
  const bool split = mods.shape == TmemShape::k16x32bx2;
  const size_t registers_at = mods.stores ? (split ? 2 : 1) : 0;
  d.address(address);
  if (mods.stores) {
    d.read_vector(d.operand(registers_at), 32, mods.registers);
  } else {
    d.untracked_vector(d.operand(registers_at), 32, mods.registers);
  }
  if (split) mods.half_split = static_cast<int32_t>(d.immediate(d.operand(mods.stores ? 1 : 2)));
  d.finish(split ? 3 : 2);
  out.set_mods(mods);
  out.handler = run_move;
}

void decode_wait(Decoder& d, Instr& out) {
  out.op_class = OpClass::Tmem;
  out.convergence = Convergence::Aligned;
  const bool stores = d.modifiers().take_one({"wait::ld", "wait::st"}) == 1;
  if (!d.modifiers().take("sync") || !d.modifiers().take("aligned")) d.unknown();
  d.finish(0);
  out.handler = stores ? run_wait_stores : run_wait_loads;
}

const Family move_family({"tcgen05.ld", "tcgen05.st"}, decode_move);
const Family wait_family({"tcgen05.wait::ld", "tcgen05.wait::st"}, decode_wait);

}  // namespace

}  // namespace ptxrun::ops

// bra, brx, call, ret, exit, trap, brkpt, nanosleep, pmevent.
#include <algorithm>
#include <cstring>

#include "decode/builder.h"
#include "exec/machine.h"
#include "ops/builtin.h"
#include "ops/lanes.h"

namespace ptxrun {
namespace {

struct BranchModifiers {
  uint32_t target;  // or list of targets
};

Step run_bra(Warp& warp, const Instr& instr, LaneMask active) {
  warp.branch(active, instr.mods<BranchModifiers>().target);
  return Step::Jump;
}

void decode_bra(Decoder& d, Instr& out) {
  out.op_class = OpClass::Control;
  d.modifiers().take("uni");
  out.set_mods(BranchModifiers{d.label(d.operand(0))});
  out.handler = run_bra;
  d.finish(1);
}

// Lanes with one index go together; the others execute the instruction again.
Step run_brx(Warp& warp, const Instr& instr, LaneMask active) {
  const std::vector<uint32_t>& targets = warp.kernel.branch_lists[instr.mods<BranchModifiers>().target];
  const uint32_t* index = warp.in<uint32_t>(instr.op(0));
  const uint32_t first = index[std::countr_zero(active)];
  LaneMask same = 0;
  for_lanes(active, [&](int lane) { same |= LaneMask{index[lane] == first} << lane; });
  if (first >= targets.size()) {
    warp.report(code::kBadOperand,
                "index " + std::to_string(first) + " of " + std::to_string(targets.size()) + " targets", same);
    return Step::Halt;
  }
  warp.branch_or_stay(same, targets[first]);
  return Step::Jump;
}

void decode_brx(Decoder& d, Instr& out) {
  out.op_class = OpClass::Control;
  d.modifiers().take("uni");
  if (!d.modifiers().take("idx")) d.unknown();
  d.read(d.operand(0), 32);
  out.set_mods(BranchModifiers{d.branch_list(d.operand(1))});
  out.handler = run_brx;
  d.finish(2);
}

// Calls -----------------------------------------------------------------------------------------------------------

void copy_local(Warp& warp, const CallModifiers& mods, LaneMask active) {
  for (uint32_t i = 0; i < mods.copies; ++i) {
    const LocalCopy& copy = warp.kernel.local_copies[mods.first_copy + i];
    for_lanes(active, [&](int lane) {
      const Place from = warp.local_place(copy.from, lane), to = warp.local_place(copy.to, lane);
      std::memcpy(to.region->data + to.offset, from.region->data + from.offset, copy.bytes);
    });
  }
}

Step run_call(Warp& warp, const Instr& instr, LaneMask active) {
  const auto& mods = instr.mods<CallModifiers>();
  copy_local(warp, mods, active);
  warp.call(active, mods.target);
  return Step::Jump;
}

Step run_copy(Warp& warp, const Instr& instr, LaneMask active) {
  copy_local(warp, instr.mods<CallModifiers>(), active);
  return Step::Next;
}

const Binding& local_variable(Decoder& d, const ast::Operand& operand) {
  const Binding* binding = d.builder().find(operand.name);
  if (binding == nullptr || binding->kind != Binding::Kind::LocalParam) d.unknown("arguments must be .param variables");
  return *binding;
}

// `call (returns), function, (arguments);` with the lists optional.
struct CallParts {
  const std::vector<ast::Operand>* returns = nullptr;
  const std::vector<ast::Operand>* arguments = nullptr;
  std::string function;
};

CallParts parse_call(Decoder& d) {
  CallParts parts;
  size_t i = 0;
  if (d.operand(i).kind == ast::OperandKind::Group) parts.returns = &d.operand(i++).parts;
  parts.function = d.operand(i++).name;
  if (i < d.operand_count() && d.operand(i).kind == ast::OperandKind::Group) parts.arguments = &d.operand(i++).parts;
  if (i != d.operand_count()) d.unknown("indirect calls are not modelled");
  return parts;
}

CallModifiers add_copies(Decoder& d, const std::vector<ast::Operand>* operands,
                         const std::vector<ast::Variable>& params, const uint32_t* offsets, bool into_params) {
  Kernel& kernel = d.builder().kernel();
  CallModifiers mods;
  mods.first_copy = static_cast<uint32_t>(kernel.local_copies.size());
  if ((operands ? operands->size() : 0) != params.size()) d.unknown("arguments do not fit the function");
  for (size_t i = 0; i < params.size(); ++i) {
    const uint32_t here = local_variable(d, (*operands)[i]).index;
    const auto bytes = static_cast<uint32_t>(params[i].bytes);
    kernel.local_copies.push_back(into_params ? LocalCopy{here, offsets[i], bytes}
                                              : LocalCopy{offsets[i], here, bytes});
  }
  mods.copies = static_cast<uint32_t>(params.size());
  return mods;
}

void decode_call(Decoder& d, Instr& out) {
  out.op_class = OpClass::Control;
  d.modifiers().take("uni");
  const CallParts parts = parse_call(d);
  if (decode_builtin(d, out, parts.function, parts.arguments)) {
    if (parts.returns != nullptr) {
      Instr nothing = out;
      nothing.handler = run_copy;
      nothing.set_mods(CallModifiers{});
      d.follower = nothing;
    }
    return d.finish(0, 3);
  }
  const ast::Function* callee = d.builder().find_function(parts.function);
  if (callee == nullptr || !callee->has_body) d.unknown("the function has no body here");
  const std::vector<uint32_t>& offsets = d.builder().parameter_offsets(*callee);
  out.set_mods(add_copies(d, parts.arguments, callee->params, offsets.data(), true));
  out.handler = run_call;
  d.builder().add_call(*callee);
  if (parts.returns != nullptr) {
    Instr fetch = out;
    fetch.set_mods(add_copies(d, parts.returns, callee->returns, offsets.data() + callee->params.size(), false));
    fetch.handler = run_copy;
    d.follower = fetch;
  }
  d.finish(1, 3);
}

// Ends ------------------------------------------------------------------------------------------------------------

Step run_ret(Warp& warp, const Instr&, LaneMask active) {
  warp.ret(active);
  return Step::Jump;
}

Step run_exit(Warp& warp, const Instr&, LaneMask active) {
  warp.exit_lanes(active);
  return Step::Jump;
}

Step run_trap(Warp& warp, const Instr&, LaneMask active) {
  warp.report(code::kTrap, "trap", active);
  return Step::Halt;
}

template <Handler kHandler>
void decode_end(Decoder& d, Instr& out) {
  out.op_class = OpClass::Control;
  d.modifiers().take("uni");
  out.handler = kHandler;
  d.finish(0);
}

// Sleeping lanes let the others run.
Step run_nanosleep(Warp& warp, const Instr&, LaneMask) {
  ++warp.polls;
  warp.back_off();
  return Step::Next;
}

void decode_nanosleep(Decoder& d, Instr& out) {
  out.op_class = OpClass::Control;
  if (d.modifiers().take_type() != Type::U32) d.unknown();
  d.read(d.operand(0), 32);
  out.handler = run_nanosleep;
  d.finish(1);
}

const Family families[] = {
    {"bra", decode_bra},
    {"brx", decode_brx},
    {"call", decode_call},
    {"ret", decode_end<run_ret>},
    {"exit", decode_end<run_exit>},
    {"trap", decode_end<run_trap>},
    {"brkpt", decode_end<run_trap>},
    {"nanosleep", decode_nanosleep},
};

}  // namespace
}  // namespace ptxrun

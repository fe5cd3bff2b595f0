// Instructions without an effect on values: prefetch, createpolicy and the like. Addresses of prefetches are not
// checked: hardware ignores bad ones.
#include "decode/decoder.h"
#include "decode/registry.h"
#include "exec/warp.h"
#include "ops/spaces.h"

namespace ptxrun::ops {

namespace {

Step run_nothing(Warp&, const Instr&, LaneMask) { return Step::Next; }

// The policy is opaque; nothing looks at it.
Step run_policy(Warp& warp, const Instr& instr, LaneMask active) {
  for_lanes(active, [&](int lane) { set_lane_value(warp, instr.op(0), lane, 0); });
  return Step::Next;
}

void decode_prefetch(Decoder& d, Instr& out) {
  out.op_class = OpClass::Memory;
  Modifiers& modifiers = d.modifiers();
  modifiers.take_one({"const", "param", "global", "local"});
  const bool known = modifiers.take("tensormap") ||
                     modifiers.take_one({"L1", "L2", "L2::evict_last", "L2::evict_normal", "L1::evict_last"}) >= 0;
  if (!known) d.unknown();
  d.address(d.operand(0));
  d.finish(1);
  out.handler = run_nothing;
}

void decode_discard(Decoder& d, Instr& out) {
  out.op_class = OpClass::Memory;
  d.modifiers().take("global");
  if (d.modifiers().take_one({"L2", "L2::evict_normal"}) < 0) d.unknown();
  d.address(d.operand(0));
  d.finish(2);
  out.handler = run_nothing;
}

void decode_policy(Decoder& d, Instr& out) {
  out.op_class = OpClass::Special;
  while (!d.modifiers().empty()) d.modifiers().take_front();
  d.write(d.operand(0), 64);
  d.finish(1, 4);
  out.handler = run_policy;
}

const Family prefetch_family({"prefetch", "prefetchu"}, decode_prefetch);
const Family discard_family({"discard", "applypriority"}, decode_discard);
const Family policy_family({"createpolicy"}, decode_policy);

}  // namespace

}  // namespace ptxrun::ops

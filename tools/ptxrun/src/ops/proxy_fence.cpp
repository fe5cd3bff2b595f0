// fence.proxy.*, fence.mbarrier_init: order between the ways in which memory is reached.
#include "check/checks.h"
#include "decode/decoder.h"
#include "decode/registry.h"
#include "exec/warp.h"
#include "ops/mbarrier.h"
#include "ops/spaces.h"

namespace ptxrun::ops {

namespace {

struct Mods {
  check::FenceSpace space;
};

Step run_async(Warp& warp, const Instr& instr, LaneMask) {
  const check::FenceSpace space = instr.mods<Mods>().space;
  check::checks(warp.machine).fence_async(warp, space);
  if (space != check::FenceSpace::Global) publish_mbarriers(warp);
  return Step::Next;
}

Step run_tensormap(Warp& warp, const Instr&, LaneMask) {
  check::checks(warp.machine).fence_tensormap(warp);
  return Step::Next;
}

Step run_mbarrier_init(Warp& warp, const Instr&, LaneMask) {
  publish_mbarriers(warp);
  return Step::Next;
}

// Only one proxy address for each piece of memory is modelled.
Step run_alias(Warp&, const Instr&, LaneMask) { return Step::Next; }

void decode_async(Decoder& d, Instr& out) {
  Mods mods{check::FenceSpace::All};
  if (d.modifiers().take("global")) mods.space = check::FenceSpace::Global;
  if (take_shared_space(d.modifiers()) != Space::Generic) mods.space = check::FenceSpace::Shared;
  d.finish(0);
  out.set_mods(mods);
  out.handler = run_async;
}

// fence.proxy.async::generic.{acquire,release}.sync_restrict::shared::*.cluster
void decode_async_generic(Decoder& d, Instr& out) {
  if (d.modifiers().take_one({"acquire", "release"}) < 0) d.unknown();
  if (d.modifiers().take_one({"sync_restrict::shared::cta", "sync_restrict::shared::cluster"}) < 0) d.unknown();
  d.modifiers().take("cluster");
  d.finish(0);
  out.set_mods(Mods{check::FenceSpace::Shared});
  out.handler = run_async;
}

void decode_tensormap(Decoder& d, Instr& out) {
  const bool acquires = d.modifiers().take("acquire");
  if (!acquires && !d.modifiers().take("release")) d.unknown();
  if (d.modifiers().take_one({"cta", "cluster", "gpu", "sys"}) < 0) d.unknown();
  if (acquires) {
    d.address(d.operand(0));
    d.read(d.operand(1), 32);
  }
  d.finish(acquires ? 2 : 0);
  out.handler = run_tensormap;
}

void decode_proxy(Decoder& d, Instr& out) {
  out.op_class = OpClass::Barrier;
  d.modifiers().take("proxy");
  if (d.modifiers().take("async")) return decode_async(d, out);
  if (d.modifiers().take("async::generic")) return decode_async_generic(d, out);
  if (d.modifiers().take("tensormap::generic")) return decode_tensormap(d, out);
  if (!d.modifiers().take("alias")) d.unknown();
  d.finish(0);
  out.handler = run_alias;
}

void decode_mbarrier_init(Decoder& d, Instr& out) {
  out.op_class = OpClass::Barrier;
  d.modifiers().take("mbarrier_init");
  if (!d.modifiers().take("release") || !d.modifiers().take("cluster")) d.unknown();
  d.finish(0);
  out.handler = run_mbarrier_init;
}

const Family proxy_family({"fence.proxy", "membar.proxy"}, decode_proxy);
const Family init_family({"fence.mbarrier_init"}, decode_mbarrier_init);

}  // namespace

}  // namespace ptxrun::ops

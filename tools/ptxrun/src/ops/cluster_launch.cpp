// clusterlaunchcontrol: a running cluster takes the place of one that has not started.
#include <cstring>

#include "check/finding.h"
#include "decode/registry.h"
#include "exec/warp.h"
#include "ops/bulk_copy.h"
#include "ops/spaces.h"

namespace ptxrun::ops {

namespace {

constexpr uint32_t kResponseBytes = 16;
constexpr uint32_t kOffsetMask = (1u << kSharedRankShift) - 1;

// The opaque response: a flag, then the first CTA's index.
struct Response {
  uint32_t cancelled, x, y, z;
};
static_assert(sizeof(Response) == kResponseBytes);

class CancelRequest : public AsyncOp {
 public:
  void complete(Machine& machine) override {
    Response response{};
    Dim3 first;
    if (machine.cancel_cluster(*cta->grid, &first)) response = {1, first.x, first.y, first.z};
    Access access;
    access.kind = Access::Kind::Write;
    access.proxy = Proxy::Async;
    access.site = &site;
    for (size_t i = 0; i < receivers.regions.size(); ++i) {
      uint8_t* to = machine.memory.touch(access, *receivers.regions[i], receivers.offset, kResponseBytes);
      if (to) std::memcpy(to, &response, kResponseBytes);
      if (receivers.barriers[i]->valid) mbarrier_complete_tx(*receivers.barriers[i], kResponseBytes, promises[i], site);
    }
  }
  std::string describe() const override {
    return "clusterlaunchcontrol.try_cancel, for " + receivers.barriers.front()->describe();
  }

  Receivers receivers;
  std::vector<Promise> promises;
};

struct CancelMods {
  bool multicast;
};

Step run_try_cancel(Warp& warp, const Instr& instr, LaneMask active) {
  auto& checks = check::checks(warp.machine);
  for_lanes(active, [&](int lane) {
    const LaneMask mask = LaneMask{1} << lane;
    const uint64_t to = lane_value(warp, instr.op(0), lane);
    const uint64_t barrier = lane_value(warp, instr.op(1), lane);
    if (!check_aligned(warp, to, kResponseBytes, "response", mask)) return;
    const uint32_t everybody = instr.mods<CancelMods>().multicast ? (1u << warp.cta.cluster->ctas.size()) - 1 : 0;
    auto request = std::make_unique<CancelRequest>();
    if (!find_receivers(warp, to, barrier, everybody, false, mask, request->receivers)) return;
    for (size_t i = 0; i < request->receivers.regions.size(); ++i) {
      Mbarrier& object = *request->receivers.barriers[i];
      request->promises.push_back(mbarrier_promise_copy(warp, object, mask));
      check::Issue issue = checks.issue(warp, checks.mbarrier_pipe(object.cta, object.offset), Proxy::Async);
      issue.write(*request->receivers.regions[i], request->receivers.offset, kResponseBytes);
    }
    request->site = warp.site(mask);
    request->cta = &warp.cta;
    warp.machine.async.issue(std::move(request));
  });
  return Step::Next;
}

Response response_of(const Warp& warp, const Operand& op, int lane) {
  const uint64_t words[2] = {warp.in<uint64_t>(op)[lane], warp.in_high(op)[lane]};
  Response response;
  std::memcpy(&response, words, sizeof(response));
  return response;
}

Step run_is_canceled(Warp& warp, const Instr& instr, LaneMask active) {
  LaneMask cancelled = 0;
  for_lanes(active, [&](int lane) {
    if (response_of(warp, instr.op(1), lane).cancelled) cancelled |= LaneMask{1} << lane;
  });
  warp.set_predicate(instr.op(0), cancelled, active);
  return Step::Next;
}

struct IndexMods {
  int8_t dimension;  // 0..2, or -1: all, with an unused fourth
};

Step run_first_ctaid(Warp& warp, const Instr& instr, LaneMask active) {
  const IndexMods& mods = instr.mods<IndexMods>();
  const int results = mods.dimension < 0 ? 4 : 1;
  for_lanes(active, [&](int lane) {
    const Response response = response_of(warp, instr.op(results), lane);
    if (!response.cancelled) {
      warp.report(code::kBadOperand, "get_first_ctaid of a request that cancelled nothing", LaneMask{1} << lane);
    }
    const uint32_t index[4] = {response.x, response.y, response.z, 0};
    for (int i = 0; i < results; ++i) {
      set_lane_value(warp, instr.op(i), lane, index[mods.dimension < 0 ? i : mods.dimension]);
    }
  });
  return Step::Next;
}

void decode_try_cancel(Decoder& d, Instr& out) {
  Modifiers& modifiers = d.modifiers();
  modifiers.take("try_cancel");
  if (!modifiers.take("async")) d.unknown();
  modifiers.take("shared::cta");
  if (!modifiers.take("mbarrier::complete_tx::bytes")) d.unknown();
  const CancelMods mods{modifiers.take("multicast::cluster::all")};
  if (!modifiers.take("b128")) d.unknown();
  d.address(d.operand(0));
  d.address(d.operand(1));
  d.finish(2);
  out.set_mods(mods);
  out.handler = run_try_cancel;
}

void decode_query(Decoder& d, Instr& out) {
  Modifiers& modifiers = d.modifiers();
  modifiers.take("query_cancel");
  if (modifiers.take("is_canceled")) {
    if (!modifiers.take("pred") || !modifiers.take("b128")) d.unknown();
    d.write_predicate(d.operand(0));
    d.read(d.operand(1), 128);
    d.finish(2);
    out.handler = run_is_canceled;
    return;
  }
  IndexMods mods{
      static_cast<int8_t>(modifiers.take_one({"get_first_ctaid::x", "get_first_ctaid::y", "get_first_ctaid::z"}))};
  if (mods.dimension < 0 && (!modifiers.take("get_first_ctaid") || !modifiers.take("v4"))) d.unknown();
  if (!modifiers.take("b32") || !modifiers.take("b128")) d.unknown();
  if (mods.dimension < 0) {
    d.write_vector(d.operand(0), 32, 4);
  } else {
    d.write(d.operand(0), 32);
  }
  d.read(d.operand(1), 128);
  d.finish(2);
  out.set_mods(mods);
  out.handler = run_first_ctaid;
}

void decode_clusterlaunchcontrol(Decoder& d, Instr& out) {
  out.op_class = OpClass::Special;
  const std::string_view kind = d.modifiers().empty() ? std::string_view() : d.modifiers().left().front();
  if (kind == "try_cancel") return decode_try_cancel(d, out);
  if (kind == "query_cancel") return decode_query(d, out);
  d.unknown();
}

const Family family({"clusterlaunchcontrol"}, decode_clusterlaunchcontrol);

}  // namespace

}  // namespace ptxrun::ops

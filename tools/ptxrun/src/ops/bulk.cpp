// cp.async.bulk and cp.reduce.async.bulk of contiguous bytes, their groups, prefetches.
#include <bit>

#include "check/finding.h"
#include "decode/registry.h"
#include "exec/warp.h"
#include "ops/bulk_copy.h"
#include "ops/format.h"
#include "ops/spaces.h"

namespace ptxrun::ops {

namespace {

constexpr uint32_t kAlignment = 16;

struct CopyMods {
  Space from, to;
  int8_t barrier = -1, mask = -1;  // operands
  ReduceOp reduce = ReduceOp::None;
  ReduceType type = ReduceType::U32;
};

bool check_copy(Warp& warp, uint64_t to, uint64_t from, uint64_t bytes, LaneMask lane) {
  if (bytes % kAlignment) {
    warp.report(code::kBadOperand, "a bulk copy of " + std::to_string(bytes) + " bytes: not a multiple of 16", lane);
    return false;
  }
  return check_aligned(warp, to, kAlignment, "destination", lane) &&
         check_aligned(warp, from, kAlignment, "source", lane);
}

Place find_source(Warp& warp, Space space, uint64_t address, uint64_t bytes, LaneMask lane) {
  const Place place = warp.machine.memory.find(space, address, &warp.cta);
  if (place.region && place.offset <= place.region->bytes && bytes <= place.region->bytes - place.offset) return place;
  Access access;
  access.site = &warp.site(lane);
  warp.machine.memory.report_bad(access, place.region, place.region ? place.offset : address, bytes);
  return {};
}

void load_one(Warp& warp, const Instr& instr, int lane) {
  const CopyMods& mods = instr.mods<CopyMods>();
  const LaneMask mask = LaneMask{1} << lane;
  const uint64_t to = lane_value(warp, instr.op(0), lane);
  const uint64_t from = lane_value(warp, instr.op(1), lane);
  const auto bytes = static_cast<uint32_t>(lane_value(warp, instr.op(2), lane));
  if (!check_copy(warp, to, from, bytes, mask)) return;
  const Place source = find_source(warp, mods.from, from, bytes, mask);
  if (!source.region) return;
  const auto ctas = mods.mask >= 0 ? static_cast<uint32_t>(lane_value(warp, instr.op(mods.mask), lane)) & 0xFFFF : 0;
  if (mods.mask >= 0 && ctas == 0) {
    warp.report(code::kBadOperand, "multicast to no CTA", mask);
    return;
  }
  Receivers receivers;
  if (!find_receivers(warp, to, lane_value(warp, instr.op(mods.barrier), lane), ctas, false, mask, receivers)) return;
  auto copy = std::make_unique<BulkCopy>();
  copy->runs.push_back({source.region, source.offset, nullptr, receivers.offset, bytes});
  copy->reduce = mods.reduce;
  copy->type = mods.type;
  issue_load(warp, lane, std::move(copy), receivers, bytes);
}

void store_one(Warp& warp, const Instr& instr, int lane) {
  const CopyMods& mods = instr.mods<CopyMods>();
  const LaneMask mask = LaneMask{1} << lane;
  const uint64_t to = lane_value(warp, instr.op(0), lane);
  const uint64_t from = lane_value(warp, instr.op(1), lane);
  const auto bytes = static_cast<uint32_t>(lane_value(warp, instr.op(2), lane));
  if (!check_copy(warp, to, from, bytes, mask)) return;
  const Place source = find_source(warp, mods.from, from, bytes, mask);
  const Place target = find_source(warp, mods.to, to, bytes, mask);
  if (!source.region || !target.region) return;
  auto copy = std::make_unique<BulkCopy>();
  copy->runs.push_back({source.region, source.offset, target.region, target.offset, bytes});
  copy->reduce = mods.reduce;
  copy->type = mods.type;
  issue_store(warp, lane, std::move(copy));
}

Step run_load(Warp& warp, const Instr& instr, LaneMask active) {
  for_lanes(active, [&](int lane) { load_one(warp, instr, lane); });
  return Step::Next;
}

Step run_store(Warp& warp, const Instr& instr, LaneMask active) {
  if (instr.mods<CopyMods>().reduce == ReduceOp::None) active = without_repetitions(warp, instr, active);
  for_lanes(active, [&](int lane) { store_one(warp, instr, lane); });
  return Step::Next;
}

Step run_nothing(Warp&, const Instr&, LaneMask) { return Step::Next; }

void decode_copy(Decoder& d, Instr& out) {
  out.op_class = OpClass::Copy;
  Modifiers& modifiers = d.modifiers();
  CopyMods mods{};
  if (modifiers.mnemonic() == "cp" && modifiers.take("reduce")) {
    mods.reduce = take_reduce_op(modifiers);
    if (mods.reduce == ReduceOp::None || !take_reduce_type(modifiers, mods.type)) d.unknown();
  }
  modifiers.take("async");
  modifiers.take("bulk");
  const bool to_global = !modifiers.left().empty() && modifiers.left().front() == "global";
  const bool from_global = !to_global && modifiers.take("global");
  if (to_global) modifiers.take("global");
  const bool to_cluster = modifiers.take("shared::cluster");
  const bool cta = modifiers.take("shared::cta");
  if (!cta && !(to_cluster && from_global)) d.unknown();
  mods.to = to_global ? Space::Global : Space::SharedCluster;
  mods.from = from_global ? Space::Global : Space::Shared;
  const bool hint = modifiers.take("L2::cache_hint");
  const bool multicast = modifiers.take("multicast::cluster");
  if (!modifiers.take(to_global ? "bulk_group" : "mbarrier::complete_tx::bytes")) d.unknown();
  d.address(d.operand(0));
  d.address(d.operand(1));
  d.read(d.operand(2), 32);
  size_t next = 3;
  if (!to_global) mods.barrier = static_cast<int8_t>(d.address(d.operand(next++)));
  if (multicast) mods.mask = static_cast<int8_t>(d.read(d.operand(next++), 16));
  if (hint) d.read(d.operand(next++), 64);
  d.finish(next);
  out.set_mods(mods);
  out.handler = to_global ? run_store : run_load;
}

void decode_prefetch(Decoder& d, Instr& out) {
  out.op_class = OpClass::Copy;
  for (const char* word : {"async", "bulk", "prefetch", "L2", "global"}) d.modifiers().take(word);
  const bool hint = d.modifiers().take("L2::cache_hint");
  d.address(d.operand(0));
  d.read(d.operand(1), 32);
  if (hint) d.read(d.operand(2), 64);
  d.finish(hint ? 3 : 2);
  out.handler = run_nothing;
}

// Groups -----------------------------------------------------------------------------------------------------------

struct WaitMods {
  uint32_t groups;
  bool read;
};

Step run_commit(Warp& warp, const Instr&, LaneMask active) {
  auto& checks = check::checks(warp.machine);
  for_lanes(active, [&](int lane) {
    BulkThread& thread = warp.ext<BulkThreads>().of(lane);
    thread.open->read = checks.pipe(warp, check::PipeKind::BulkRead, static_cast<uint32_t>(lane)).close();
    thread.open->written = checks.pipe(warp, check::PipeKind::BulkWrite, static_cast<uint32_t>(lane)).close();
    thread.committed.push_back(std::move(thread.open));
    thread.open = std::make_shared<BulkGroup>();
  });
  return Step::Next;
}

// True if all but the newest `allowed` groups are complete.
bool groups_complete(const BulkThread& thread, uint32_t allowed) {
  for (size_t i = 0; i + allowed < thread.committed.size(); ++i) {
    if (thread.committed[i]->pending) return false;
  }
  return true;
}

Step run_wait(Warp& warp, const Instr& instr, LaneMask active) {
  const WaitMods& mods = instr.mods<WaitMods>();
  auto& checks = check::checks(warp.machine);
  auto* threads = warp.extensions.find<BulkThreads>();
  if (!threads) return Step::Next;
  for_lanes(active, [&](int lane) {
    const auto found = threads->at.find(lane);
    if (found == threads->at.end()) return;
    BulkThread& thread = found->second;
    if (!groups_complete(thread, mods.groups)) {
      warp.park(thread, LaneMask{1} << lane);
      return;
    }
    if (mods.groups == 0 && thread.open->pending == 0) thread.unread = false;
    if (thread.committed.size() <= mods.groups) return;
    const BulkGroup& newest = *thread.committed[thread.committed.size() - 1 - mods.groups];
    checks.waited(warp, newest.read);
    if (!mods.read) checks.waited(warp, newest.written);
    // Groups that are waited for in full are not looked at again.
    while (!mods.read && thread.committed.size() > mods.groups) thread.committed.pop_front();
  });
  return Step::Next;
}

void decode_commit(Decoder& d, Instr& out) {
  out.op_class = OpClass::Copy;
  for (const char* word : {"async", "bulk", "commit_group"}) d.modifiers().take(word);
  d.finish(0);
  out.handler = run_commit;
}

void decode_wait(Decoder& d, Instr& out) {
  out.op_class = OpClass::Copy;
  for (const char* word : {"async", "bulk", "wait_group"}) d.modifiers().take(word);
  WaitMods mods{};
  mods.read = d.modifiers().take("read");
  mods.groups = static_cast<uint32_t>(d.immediate(d.operand(0)));
  d.finish(1);
  out.set_mods(mods);
  out.handler = run_wait;
}

const Family copy_family({"cp.async.bulk", "cp.reduce.async.bulk"}, decode_copy);
const Family prefetch_family({"cp.async.bulk.prefetch"}, decode_prefetch);
const Family commit_family({"cp.async.bulk.commit_group"}, decode_commit);
const Family wait_family({"cp.async.bulk.wait_group"}, decode_wait);

}  // namespace

}  // namespace ptxrun::ops

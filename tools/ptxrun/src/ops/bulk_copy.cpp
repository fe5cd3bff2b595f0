#include "ops/bulk_copy.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "check/finding.h"
#include "exec/warp.h"
#include "ops/format.h"
#include "ops/spaces.h"

namespace ptxrun::ops {

namespace {

constexpr uint32_t kOffsetMask = (1u << kSharedRankShift) - 1;

Access untold(const Site& site, Access::Kind kind) {
  Access access;
  access.kind = kind;
  access.proxy = Proxy::Async;
  access.site = &site;
  return access;
}

bool outside_own_pair(const Cta& own, uint32_t rank) { return rank / 2 != own.rank / 2; }

}  // namespace

std::string BulkThread::describe() const {
  uint32_t pending = open->pending;
  for (const auto& group : committed) pending += group->pending;
  return "bulk groups of warp " + std::to_string(warp) + " lane " + std::to_string(lane) + ", " +
         std::to_string(pending) + " copies pending";
}

BulkThread& BulkThreads::of(int lane) {
  BulkThread& thread = at[lane];
  thread.warp = warp.index;
  thread.lane = static_cast<uint32_t>(lane);
  return thread;
}

void BulkThreads::on_end(Warp& warp) {
  if (!check::checks(warp.machine).tracks_order()) return;
  for (auto& [lane, thread] : at) {
    if (!thread.unread) continue;
    warp.report(code::kPendingAtExit,
                "the warp ends without cp.async.bulk.wait_group{.read} 0 after a copy out of shared memory",
                LaneMask{1} << lane);
  }
}

void BulkCopy::move(Machine& machine, const BulkRun& run, Region& to) const {
  const uint8_t* from = nullptr;
  if (run.from) {
    from = machine.memory.touch(untold(site, Access::Kind::Read), *run.from, run.from_offset, run.bytes);
    if (!from) return;
  }
  const auto kind = reduce == ReduceOp::None ? Access::Kind::Write : Access::Kind::Atomic;
  uint8_t* data = machine.memory.touch(untold(site, kind), to, run.to_offset, run.bytes);
  if (!data) return;
  if (!from) {
    for (uint32_t i = 0; i < run.bytes; ++i) data[i] = fill[i % fill.size()];
  } else if (reduce == ReduceOp::None) {
    std::memmove(data, from, run.bytes);
  } else {
    reduce_bytes(reduce, type, data, from, run.bytes);
  }
}

void BulkCopy::complete(Machine& machine) {
  for (const BulkRun& run : runs) {
    if (run.to) {
      move(machine, run, *run.to);
      continue;
    }
    for (Region* region : destinations) move(machine, run, *region);
  }
  for (const BulkSignal& signal : signals) {
    if (signal.barrier->valid) {
      mbarrier_complete_tx(*signal.barrier, static_cast<int64_t>(signal_bytes), signal.promise, site);
    } else {
      machine.report(code::kInvalidMbarrier, "the mbarrier was invalidated before the copy completed", site,
                     &signal.barrier->cta.shared, signal.barrier->offset);
    }
  }
  if (group) {
    --group->pending;
    thread->wake_all();
  }
}

std::string BulkCopy::describe() const {
  std::string text = "bulk copy of " + std::to_string(bytes) + " bytes";
  for (const BulkSignal& signal : signals) text += ", for " + signal.barrier->describe();
  return text;
}

bool find_receivers(Warp& warp, uint64_t destination, uint64_t barrier, uint32_t mask, bool pair, LaneMask lane,
                    Receivers& out) {
  const Place place = warp.machine.memory.find(Space::SharedCluster, destination, &warp.cta);
  const Place signal = warp.machine.memory.find(Space::SharedCluster, barrier, &warp.cta);
  if (!place.region || !signal.region) {
    warp.report(code::kCluster, "destination or mbarrier lies in no CTA of the cluster", lane);
    return false;
  }
  out.offset = static_cast<uint32_t>(place.offset);
  const uint32_t own_rank = place.region->cta->rank;
  const uint32_t signal_rank = signal.region->cta->rank;
  const bool pair_ok = pair && !outside_own_pair(*place.region->cta, signal_rank);
  if (mask == 0 && own_rank != signal_rank && !pair_ok) {
    warp.report(code::kBadOperand, "destination and mbarrier of a bulk copy lie in different CTAs", lane);
    return false;
  }
  auto& ctas = warp.cta.cluster->ctas;
  for (uint32_t rank = 0; rank < 32; ++rank) {
    if (mask ? !(mask >> rank & 1) : rank != own_rank) continue;
    // A pair's signals go to that CTA of the pair which the mbarrier's address names.
    const uint32_t to = pair && mask ? (rank & ~1u) | (signal_rank & 1) : mask ? rank : signal_rank;
    if (rank >= ctas.size() || to >= ctas.size()) {
      warp.report(code::kCluster, "multicast to CTA " + std::to_string(rank) + ", which the cluster has not", lane);
      return false;
    }
    Mbarrier* object = find_mbarrier(*ctas[to], static_cast<uint32_t>(barrier) & kOffsetMask, warp.site(lane));
    if (!object) return false;
    out.regions.push_back(&ctas[rank]->shared);
    out.barriers.push_back(object);
  }
  return true;
}

void issue_load(Warp& warp, int lane, std::unique_ptr<BulkCopy> copy, const Receivers& receivers,
                uint64_t shared_bytes) {
  auto& checks = check::checks(warp.machine);
  copy->site = warp.site(LaneMask{1} << lane);
  copy->cta = &warp.cta;
  copy->destinations = receivers.regions;
  copy->signal_bytes = copy->bytes = shared_bytes;
  for (size_t i = 0; i < receivers.regions.size(); ++i) {
    Mbarrier& barrier = *receivers.barriers[i];
    copy->signals.push_back({&barrier, mbarrier_promise_copy(warp, barrier, LaneMask{1} << lane)});
    check::Issue issue = checks.issue(warp, checks.mbarrier_pipe(barrier.cta, barrier.offset), Proxy::Async);
    for (size_t first = 0; first < copy->runs.size();) {
      // Swizzled pieces of one row are neighbours in global memory.
      const BulkRun& run = copy->runs[first];
      uint64_t bytes = run.bytes;
      size_t next = first + 1;
      while (next < copy->runs.size() && copy->runs[next].from == run.from &&
             copy->runs[next].from_offset == run.from_offset + bytes) {
        bytes += copy->runs[next++].bytes;
      }
      if (run.from) issue.read(*run.from, run.from_offset, bytes);
      first = next;
    }
    issue.set_layout(copy->layout);
    issue.write(*receivers.regions[i], receivers.offset, shared_bytes);
  }
  warp.machine.async.issue(std::move(copy));
}

void issue_store(Warp& warp, int lane, std::unique_ptr<BulkCopy> copy) {
  auto& checks = check::checks(warp.machine);
  BulkThread& thread = warp.ext<BulkThreads>().of(lane);
  const auto number = static_cast<uint32_t>(lane);
  const check::Issue reads = checks.issue(warp, checks.pipe(warp, check::PipeKind::BulkRead, number), Proxy::Async);
  check::Issue writes = reads.through(checks.pipe(warp, check::PipeKind::BulkWrite, number));
  check::Issue source = reads;
  copy->site = warp.site(LaneMask{1} << lane);
  copy->cta = &warp.cta;
  copy->group = thread.open;
  copy->thread = &thread;
  for (const BulkRun& run : copy->runs) {
    copy->bytes += run.bytes;
    source.read(*run.from, run.from_offset, run.bytes);
    if (copy->reduce == ReduceOp::None) {
      writes.write(*run.to, run.to_offset, run.bytes);
    } else {
      writes.reduce(*run.to, run.to_offset, run.bytes);
    }
  }
  ++thread.open->pending;
  thread.unread = true;
  warp.machine.async.issue(std::move(copy));
}

LaneMask without_repetitions(const Warp& warp, const Instr& instr, LaneMask active) {
  const int first = std::countr_zero(active);
  LaneMask lanes = LaneMask{1} << first;
  for_lanes(active & ~lanes, [&](int lane) {
    for (const Operand& op : instr.ops(0, instr.operand_count)) {
      if (op.kind == Operand::Kind::Register && lane_value(warp, op, lane) != lane_value(warp, op, first)) {
        lanes |= LaneMask{1} << lane;
        return;
      }
    }
  });
  return lanes;
}

check::Layout layout_of(uint8_t tensor_map_swizzle) {
  constexpr check::Layout kLayouts[] = {check::Layout::Linear, check::Layout::Swizzle32, check::Layout::Swizzle64,
                                        check::Layout::Swizzle128};
  return tensor_map_swizzle < std::size(kLayouts) ? kLayouts[tensor_map_swizzle] : check::Layout::Unknown;
}

bool check_aligned(Warp& warp, uint64_t address, uint32_t alignment, const char* what, LaneMask lane) {
  if (address % alignment == 0) return true;
  warp.report(code::kMisaligned,
              std::string(what) + " " + hex(address) + " is not a multiple of " + std::to_string(alignment), lane);
  return false;
}

ReduceOp take_reduce_op(Modifiers& modifiers) {
  switch (modifiers.take_one({"add", "min", "max", "inc", "dec", "and", "or", "xor"})) {
    case 0:
      return ReduceOp::Add;
    case 1:
      return ReduceOp::Min;
    case 2:
      return ReduceOp::Max;
    case 3:
      return ReduceOp::Inc;
    case 4:
      return ReduceOp::Dec;
    case 5:
      return ReduceOp::And;
    case 6:
      return ReduceOp::Or;
    case 7:
      return ReduceOp::Xor;
    default:
      return ReduceOp::None;
  }
}

bool take_reduce_type(Modifiers& modifiers, ReduceType& type) {
  modifiers.take("noftz");
  const int index = modifiers.take_one({"u32", "s32", "u64", "s64", "f16", "bf16", "f32", "f64", "b32", "b64"});
  if (index < 0) return false;
  type = static_cast<ReduceType>(index);
  return true;
}

}  // namespace ptxrun::ops

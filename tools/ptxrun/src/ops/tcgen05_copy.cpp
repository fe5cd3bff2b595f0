// tcgen05.cp, commit and the fences.
#include <cstring>
#include <string>

#include "decode/registry.h"
#include "exec/warp.h"
#include "model/tmem_layout.h"
#include "ops/mbarrier.h"
#include "ops/smem_operand.h"
#include "ops/spaces.h"
#include "ops/tcgen05.h"

namespace ptxrun::ops {

namespace {

constexpr int kWordBytes = 4;

struct CopyMods {
  model::CopyShape shape;
  uint8_t cta_group;
};

int copy_columns(model::CopyShape shape) { return model::copy_extent(shape).row_bytes / kWordBytes; }

// Each CTA of the group copies from its own shared memory to its own tensor memory.
class CopyOp : public AsyncOp {
 public:
  CopyOp(Warp& warp, const Instr& instr, uint32_t address, const SmemOperand& source)
      : mods_(instr.mods<CopyMods>()), address_(address), source_(source) {
    site = warp.site();
    cta = &warp.cta;
    order = cta->ext<Tcgen05Cta>().pipe;
  }
  std::string describe() const override { return "tcgen05.cp to " + ops::describe(row_range(0, 0)); }

  void complete(Machine& machine) override {
    const model::CopyExtent extent = model::copy_extent(mods_.shape);
    std::vector<uint8_t> rows(static_cast<size_t>(extent.rows) * extent.row_bytes);
    for (Cta* target : group_of(*cta, mods_.cta_group)) {
      source_.fetch_packed(machine, target->shared, site, rows.data());
      TmemState& tmem = target->sm->ext<TmemState>();
      for (int row = 0; row < extent.rows; ++row) {
        for (int copy = 0; copy < extent.copies; ++copy) {
          const TmemRange range = row_range(row, copy);
          std::memcpy(tmem.lane(range.lane) + range.column, &rows[static_cast<size_t>(row) * extent.row_bytes],
                      static_cast<size_t>(extent.row_bytes));
        }
      }
    }
  }

  TmemRange row_range(int row, int copy) const {
    return {static_cast<int>(tmem_lane(address_)) + model::copy_lane(mods_.shape, row, copy), 1,
            static_cast<int>(tmem_column(address_)), copy_columns(mods_.shape)};
  }

 private:
  CopyMods mods_;
  uint32_t address_;
  SmemOperand source_;
};

void issue_copy(Warp& warp, const Instr& instr, int lane) {
  const CopyMods& mods = instr.mods<CopyMods>();
  const LaneMask active = warp.site(LaneMask{1} << lane).lanes;
  if (!check_cta_group(warp, mods.cta_group, active)) return;
  const auto address = static_cast<uint32_t>(lane_value(warp, instr.op(0), lane));
  const model::CopyExtent extent = model::copy_extent(mods.shape);
  model::Problems problems;
  const model::SmemMatrix matrix = model::decode_tcgen05_descriptor(lane_value(warp, instr.op(1), lane), problems);
  if (problems.empty()) {
    model::check_smem_matrix(matrix, model::Major::kK, extent.rows, extent.row_bytes, 8, problems);
  }
  report_problems(warp, problems, active);
  if (tmem_lane(address) != 0) {
    warp.report(code::kTmemAccess, "tcgen05.cp to lane " + std::to_string(tmem_lane(address)) + " instead of lane 0",
                active);
    return;
  }
  auto op = std::make_unique<CopyOp>(warp, instr, address,
                                     SmemOperand(matrix, model::Major::kK, 0, extent.rows, extent.row_bytes, 8));
  check::Checks& checks = check::checks(warp.machine);
  check::Issue issue =
      checks.issue(warp, checks.pipe(warp, check::PipeKind::Tcgen05, static_cast<uint32_t>(lane)), Proxy::Async, true);
  for (Cta* target : group_of(warp.cta, mods.cta_group)) {
    const TmemRange all{0, kTmemLanes, static_cast<int>(tmem_column(address)), copy_columns(mods.shape)};
    if (!check_tmem(warp, *target, all, "the destination", active)) return;
    SmemOperand(matrix, model::Major::kK, 0, extent.rows, extent.row_bytes, 8).announce(issue, target->shared);
    issue.set_layout(check::Layout::ScaleFactors);
    for (int row = 0; row < extent.rows; ++row) {
      for (int copy = 0; copy < extent.copies; ++copy) announce_write(issue, *target->sm, op->row_range(row, copy));
    }
  }
  warp.machine.async.issue(std::move(op));
}

Step run_copy(Warp& warp, const Instr& instr, LaneMask active) {
  for_lanes(active, [&](int lane) { issue_copy(warp, instr, lane); });
  return Step::Next;
}

void decode_copy(Decoder& d, Instr& out) {
  out.op_class = OpClass::Tmem;
  Modifiers& modifiers = d.modifiers();
  modifiers.take("cp");
  CopyMods mods{};
  mods.cta_group = static_cast<uint8_t>(take_cta_group(d));
  const int shape = modifiers.take_one({"128x256b", "4x256b", "128x128b", "64x128b", "32x128b"});
  const int copies = modifiers.take_one({"warpx2::02_13", "warpx2::01_23", "warpx4"});
  using model::CopyShape;
  if (shape >= 0 && shape < 3 && copies < 0) {
    constexpr CopyShape kShapes[] = {CopyShape::k128x256b, CopyShape::k4x256b, CopyShape::k128x128b};
    mods.shape = kShapes[shape];
  } else if (shape == 3 && copies >= 0 && copies < 2) {
    mods.shape = copies == 0 ? CopyShape::k64x128bWarpx2_02_13 : CopyShape::k64x128bWarpx2_01_23;
  } else if (shape == 4 && copies == 2) {
    mods.shape = CopyShape::k32x128bWarpx4;
  } else {
    d.unknown();
  }
  d.address(d.operand(0));
  d.read(d.operand(1), 64);
  d.finish(2);
  out.set_mods(mods);
  out.handler = run_copy;
}

// Commit -------------------------------------------------------------------------------------------------------------

struct CommitMods {
  uint8_t cta_group;
  Space space;
  bool multicast;
};

constexpr uint64_t kOffsetMask = (uint64_t{1} << kSharedRankShift) - 1;

class CommitOp : public AsyncOp {
 public:
  CommitOp(Warp& warp, std::vector<Mbarrier*> targets, check::View view)
      : targets_(std::move(targets)), view_(std::move(view)) {
    site = warp.site();
    cta = &warp.cta;
    order = cta->ext<Tcgen05Cta>().pipe;
  }
  std::string describe() const override {
    std::string text = "tcgen05.commit to";
    for (const Mbarrier* target : targets_) text += " " + target->describe();
    return text;
  }
  void complete(Machine&) override {
    for (Mbarrier* target : targets_) mbarrier_arrive(*target, 1, view_, site);
  }

 private:
  std::vector<Mbarrier*> targets_;
  check::View view_;
};

std::vector<Mbarrier*> commit_targets(Warp& warp, const Instr& instr, int lane) {
  const CommitMods& mods = instr.mods<CommitMods>();
  const uint64_t address = lane_value(warp, instr.op(0), lane);
  const LaneMask active = LaneMask{1} << lane;
  std::vector<Mbarrier*> targets;
  if (!mods.multicast) {
    if (Mbarrier* barrier = find_mbarrier(warp, mods.space, address, active)) targets.push_back(barrier);
    return targets;
  }
  const uint64_t mask = lane_value(warp, instr.op(1), lane) & 0xFFFF;
  for (uint32_t rank = 0; mask >> rank != 0; ++rank) {
    if ((mask >> rank & 1) == 0) continue;
    if (rank >= warp.cta.cluster->ctas.size()) {
      warp.report(code::kCluster, "the multicast names CTA " + std::to_string(rank) + ", which the cluster has not",
                  active);
      continue;
    }
    Cta& target = *warp.cta.cluster->ctas[rank];
    const auto offset = static_cast<uint32_t>(address & kOffsetMask);
    if (Mbarrier* barrier = find_mbarrier(target, offset, warp.site(active))) targets.push_back(barrier);
  }
  return targets;
}

void issue_commit(Warp& warp, const Instr& instr, int lane) {
  const LaneMask active = warp.site(LaneMask{1} << lane).lanes;
  if (!check_cta_group(warp, instr.mods<CommitMods>().cta_group, active)) return;
  std::vector<Mbarrier*> targets = commit_targets(warp, instr, lane);
  if (targets.empty()) return;
  for (Mbarrier* target : targets) mbarrier_promise(warp, *target, active);
  check::Checks& checks = check::checks(warp.machine);
  check::View view;
  checks.release(warp, view);
  checks.announce(view, checks.pipe(warp, check::PipeKind::Tcgen05, static_cast<uint32_t>(lane)).close());
  warp.machine.async.issue(std::make_unique<CommitOp>(warp, std::move(targets), std::move(view)));
}

Step run_commit(Warp& warp, const Instr& instr, LaneMask active) {
  for_lanes(active, [&](int lane) { issue_commit(warp, instr, lane); });
  return Step::Next;
}

void decode_commit(Decoder& d, Instr& out) {
  out.op_class = OpClass::Tmem;
  Modifiers& modifiers = d.modifiers();
  modifiers.take("commit");
  CommitMods mods{};
  mods.cta_group = static_cast<uint8_t>(take_cta_group(d));
  if (!modifiers.take("mbarrier::arrive::one")) d.unknown();
  mods.space = take_shared_space(modifiers);
  mods.multicast = modifiers.take("multicast::cluster");
  if (!modifiers.take("b64")) d.unknown();
  d.address(d.operand(0));
  if (mods.multicast) d.read_any(d.operand(1), 16);
  d.finish(mods.multicast ? 2 : 1);
  out.set_mods(mods);
  out.handler = run_commit;
}

// Fences -------------------------------------------------------------------------------------------------------------

Step run_before(Warp& warp, const Instr&, LaneMask) {
  check::checks(warp.machine).tcgen05_before_thread_sync(warp);
  return Step::Next;
}

Step run_after(Warp& warp, const Instr&, LaneMask) {
  check::checks(warp.machine).tcgen05_after_thread_sync(warp);
  return Step::Next;
}

void decode_fence(Decoder& d, Instr& out) {
  out.op_class = OpClass::Tmem;
  const bool after = d.modifiers().take_one({"fence::before_thread_sync", "fence::after_thread_sync"}) == 1;
  d.finish(0);
  out.handler = after ? run_after : run_before;
}

const Family copy_family({"tcgen05.cp"}, decode_copy);
const Family commit_family({"tcgen05.commit"}, decode_commit);
const Family fence_family({"tcgen05.fence::before_thread_sync", "tcgen05.fence::after_thread_sync"}, decode_fence);

}  // namespace

}  // namespace ptxrun::ops

// barrier.cluster, mapa, getctarank.
#include <bit>
#include <string>

#include "check/checks.h"
#include "check/finding.h"
#include "decode/decoder.h"
#include "decode/registry.h"
#include "exec/warp.h"
#include "ops/mbarrier.h"
#include "ops/spaces.h"

namespace ptxrun::ops {

namespace {

struct ClusterBarrier : Extension<Cluster>, WaitObject {
  explicit ClusterBarrier(Cluster& cluster);
  Cluster* cluster;
  uint64_t phase = 0;
  check::View arriving, done;
  std::string describe() const override;
};

// What a warp's lanes have done in the cluster barrier.
struct ClusterUser : Extension<Warp> {
  explicit ClusterUser(Warp&) {}
  LaneMask arrived = 0;  // in the current phase
  LaneMask waiting = 0;  // have arrived and not yet waited
  uint64_t phase = 0;    // of the arrival that is to be waited for
  void on_end(Warp& warp) override;
};

ClusterBarrier::ClusterBarrier(Cluster& cluster) : cluster(&cluster) {
  for (auto& cta : cluster.ctas) {
    for (auto& warp : cta->warps) warp->ext<ClusterUser>();
  }
}

bool has_arrived(const Warp& warp) {
  const auto* user = warp.extensions.find<ClusterUser>();
  return user && (user->arrived & warp.live) == warp.live;
}

std::string ClusterBarrier::describe() const {
  std::string text = "barrier.cluster, phase " + std::to_string(phase) + ", missing:";
  for (const auto& cta : cluster->ctas) {
    for (const auto& warp : cta->warps) {
      if (warp->live && !has_arrived(*warp)) {
        text += " CTA " + std::to_string(cta->linear) + " warp " + std::to_string(warp->index) + ";";
      }
    }
  }
  return text;
}

void complete_if_all_arrived(Cluster& cluster, const Warp* ending) {
  for (const auto& cta : cluster.ctas) {
    for (const auto& warp : cta->warps) {
      if (warp.get() != ending && warp->live && !has_arrived(*warp)) return;
    }
  }
  ClusterBarrier& barrier = cluster.ext<ClusterBarrier>();
  barrier.done = barrier.arriving;
  barrier.arriving = check::View();
  for (const auto& cta : cluster.ctas) {
    for (const auto& warp : cta->warps) {
      if (auto* user = warp->extensions.find<ClusterUser>()) user->arrived = 0;
    }
  }
  barrier.wake_tag(barrier.phase++);
}

void ClusterUser::on_end(Warp& warp) {
  arrived = 0;
  bool anybody = false;
  for (const auto& cta : warp.cta.cluster->ctas) {
    for (const auto& other : cta->warps) {
      const auto* user = other->extensions.find<ClusterUser>();
      anybody |= user && user->arrived != 0;
    }
  }
  if (anybody) complete_if_all_arrived(*warp.cta.cluster, &warp);
}

struct BarrierMods {
  bool waits;
  bool relaxed;
};

Step run_arrive(Warp& warp, const Instr& instr, LaneMask active) {
  ClusterUser& user = warp.ext<ClusterUser>();
  ClusterBarrier& barrier = warp.cta.cluster->ext<ClusterBarrier>();
  if (user.waiting & active) {
    warp.report(code::kBarrierMismatch, "barrier.cluster.arrive again before barrier.cluster.wait",
                user.waiting & active);
    return Step::Next;
  }
  note_progress(warp.machine);
  user.arrived |= active;
  user.waiting |= active;
  user.phase = barrier.phase;
  if (!instr.mods<BarrierMods>().relaxed) check::checks(warp.machine).release(warp, barrier.arriving);
  complete_if_all_arrived(*warp.cta.cluster, nullptr);
  return Step::Next;
}

Step run_wait(Warp& warp, const Instr&, LaneMask active) {
  ClusterUser& user = warp.ext<ClusterUser>();
  ClusterBarrier& barrier = warp.cta.cluster->ext<ClusterBarrier>();
  if (active & ~user.waiting) {
    warp.report(code::kBarrierMismatch, "barrier.cluster.wait without barrier.cluster.arrive", active & ~user.waiting);
    return Step::Next;
  }
  if (barrier.phase == user.phase) {
    warp.park(barrier, active, barrier.phase);
    return Step::Next;
  }
  user.waiting &= ~active;
  check::checks(warp.machine).acquire(warp, barrier.done);
  return Step::Next;
}

void decode_cluster_barrier(Decoder& d, Instr& out) {
  out.op_class = OpClass::Barrier;
  d.modifiers().take("cluster");
  const int kind = d.modifiers().take_one({"arrive", "wait"});
  if (kind < 0) d.unknown();
  BarrierMods mods{.waits = kind == 1, .relaxed = d.modifiers().take("relaxed")};
  d.modifiers().take_one({"acquire", "release"});
  if (d.modifiers().take("aligned")) out.convergence = Convergence::Aligned;
  d.finish(0);
  out.set_mods(mods);
  out.handler = mods.waits ? run_wait : run_arrive;
}

struct AddressMods {
  bool generic;
};

constexpr uint64_t kOffsetMask = (uint64_t{1} << kSharedRankShift) - 1;

Step run_mapa(Warp& warp, const Instr& instr, LaneMask active) {
  const bool generic = instr.mods<AddressMods>().generic;
  const uint64_t ctas = warp.cta.cluster->ctas.size();
  for_lanes(active, [&](int lane) {
    const uint64_t rank = lane_value(warp, instr.op(2), lane);
    if (rank >= ctas) {
      warp.report(code::kCluster, "mapa to CTA " + std::to_string(rank) + " of a cluster of " + std::to_string(ctas),
                  LaneMask{1} << lane);
      return;
    }
    const uint64_t offset = lane_value(warp, instr.op(1), lane) & kOffsetMask;
    set_lane_value(warp, instr.op(0), lane, (generic ? kSharedWindow : 0) + (rank << kSharedRankShift) + offset);
  });
  return Step::Next;
}

Step run_getctarank(Warp& warp, const Instr& instr, LaneMask active) {
  for_lanes(active, [&](int lane) {
    const uint64_t address = lane_value(warp, instr.op(1), lane);
    set_lane_value(warp, instr.op(0), lane, (address & (kWindowSize - 1)) >> kSharedRankShift);
  });
  return Step::Next;
}

void decode_mapa(Decoder& d, Instr& out) {
  out.op_class = OpClass::Alu;
  AddressMods mods{.generic = !d.modifiers().take("shared::cluster")};
  const bool wide = d.modifiers().take("u64");
  if (!wide && !d.modifiers().take("u32")) d.unknown();
  d.write(d.operand(0), wide ? 64 : 32);
  d.read(d.operand(1), wide ? 64 : 32);
  d.read(d.operand(2), 32);
  d.finish(3);
  out.set_mods(mods);
  out.handler = run_mapa;
}

void decode_getctarank(Decoder& d, Instr& out) {
  out.op_class = OpClass::Alu;
  d.modifiers().take("shared::cluster");
  const bool wide = d.modifiers().take("u64");
  if (!wide && !d.modifiers().take("u32")) d.unknown();
  d.write(d.operand(0), 32);
  d.read(d.operand(1), wide ? 64 : 32);
  d.finish(2);
  out.handler = run_getctarank;
}

const Family cluster_family({"barrier.cluster"}, decode_cluster_barrier);
const Family mapa_family({"mapa"}, decode_mapa);
const Family rank_family({"getctarank"}, decode_getctarank);

}  // namespace

}  // namespace ptxrun::ops

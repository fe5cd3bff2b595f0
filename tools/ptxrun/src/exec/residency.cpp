// Which clusters are resident: start, placement on SMs, end.
#include <algorithm>

#include "exec/machine.h"

namespace ptxrun {
namespace {

uint32_t shared_bytes(const LaunchConfig& config) { return config.kernel->static_shared + config.dynamic_shared; }

uint32_t registers(const LaunchConfig& config) {
  return config.registers * static_cast<uint32_t>(config.block.count());
}

Dim3 position(uint64_t linear, const Dim3& extent) {
  return {static_cast<uint32_t>(linear % extent.x), static_cast<uint32_t>(linear / extent.x % extent.y),
          static_cast<uint32_t>(linear / extent.x / extent.y)};
}

Dim3 cluster_grid(const LaunchConfig& config) {
  return {config.grid.x / config.cluster.x, config.grid.y / config.cluster.y, config.grid.z / config.cluster.z};
}

void take(Sm& sm, const LaunchConfig& config) {
  ++sm.ctas;
  sm.shared_used += shared_bytes(config);
  sm.threads_used += static_cast<uint32_t>(config.block.count());
  sm.registers_used += registers(config);
}

void give_back(Sm& sm, const LaunchConfig& config) {
  --sm.ctas;
  sm.shared_used -= shared_bytes(config);
  sm.threads_used -= static_cast<uint32_t>(config.block.count());
  sm.registers_used -= registers(config);
}

constexpr uint8_t kSharedPoison = 0xCD;

}  // namespace

bool Machine::fits(const Grid& grid, const Sm& sm) const {
  const LaunchConfig& config = grid.config;
  return sm.ctas < options.ctas_per_sm && sm.shared_used + shared_bytes(config) <= options.shared_per_sm &&
         sm.threads_used + config.block.count() <= options.threads_per_sm &&
         sm.registers_used + registers(config) <= options.registers_per_sm;
}

bool Machine::all_fit(const LaunchConfig& config) const {
  uint64_t per_sm = options.ctas_per_sm;
  per_sm = std::min<uint64_t>(per_sm, options.shared_per_sm / shared_bytes(config));
  per_sm = std::min<uint64_t>(per_sm, options.threads_per_sm / config.block.count());
  if (config.registers) per_sm = std::min<uint64_t>(per_sm, options.registers_per_sm / registers(config));
  return config.grid.count() <= per_sm * options.sms;
}

// A cluster takes neighbouring SMs, a CTA each, from a multiple of its size on: pairs share a TPC.
std::vector<Sm*> Machine::place_cluster(const Grid& grid) {
  const size_t size = grid.config.cluster.count();
  std::vector<Sm*> best;
  for (size_t first = 0; first + size <= sms.size(); first += size) {
    bool room = true;
    for (size_t i = first; i < first + size; ++i) room &= fits(grid, sms[i]);
    if (!room || (!best.empty() && sms[first].ctas >= best[0]->ctas)) continue;
    best.clear();
    for (size_t i = first; i < first + size; ++i) best.push_back(&sms[i]);
  }
  return best;
}

bool Machine::may_start(const Grid& grid) const {
  if (grid.index == 0) return true;
  const Grid& before = *grids[grid.index - 1];
  return before.done || (grid.config.pdl && before.started && before.ctas_launched_dependents == before.ctas());
}

bool Machine::start_clusters() {
  bool any = false;
  for (auto& grid : grids) {
    if (grid->done) continue;
    if (!may_start(*grid)) break;
    if (!grid->started) {
      grid->started = true;
      checker->grid_start(*grid);
    }
    while (grid->next_cluster < grid->clusters && start_cluster(*grid)) any = true;
    if (grid->next_cluster < grid->clusters) break;
  }
  return any;
}

bool Machine::start_cluster(Grid& grid) {
  const std::vector<Sm*> where = place_cluster(grid);
  if (where.empty()) return false;
  auto cluster = std::make_unique<Cluster>();
  cluster->grid = &grid;
  cluster->index = position(grid.next_cluster++, cluster_grid(grid.config));
  cluster->age = next_age_++;
  for (uint32_t rank = 0; rank < where.size(); ++rank) {
    cluster->ctas.push_back(make_cta(grid, *cluster, rank, *where[rank]));
  }
  cluster->live_ctas = static_cast<uint32_t>(where.size());
  for (auto& cta : cluster->ctas) {
    checker->region_added(cta->shared);
    checker->cta_start(*cta);
    for (auto& warp : cta->warps) checker->warp_start(*warp);
  }
  ready_clusters_.insert(cluster.get());
  grid.live.push_back(std::move(cluster));
  return true;
}

std::unique_ptr<Cta> Machine::make_cta(Grid& grid, Cluster& cluster, uint32_t rank, Sm& sm) {
  const LaunchConfig& config = grid.config;
  auto cta = std::make_unique<Cta>();
  cta->machine = this;
  cta->grid = &grid;
  cta->cluster = &cluster;
  cta->sm = &sm;
  cta->rank = rank;
  cta->cluster_index = position(rank, config.cluster);
  cta->index = {cluster.index.x * config.cluster.x + cta->cluster_index.x,
                cluster.index.y * config.cluster.y + cta->cluster_index.y,
                cluster.index.z * config.cluster.z + cta->cluster_index.z};
  cta->linear = (cta->index.z * config.grid.y + cta->index.y) * config.grid.x + cta->index.x;
  Region& shared = cta->shared;
  shared.kind = Region::Kind::Shared;
  shared.base = kSharedWindow | uint64_t{rank} << kSharedRankShift;
  shared.bytes = shared_bytes(config);
  shared.storage.assign(shared.bytes, kSharedPoison);
  shared.data = shared.storage.data();
  shared.name = "shared";
  shared.cta = cta.get();
  take(sm, config);
  const auto threads = static_cast<uint32_t>(config.block.count());
  for (uint32_t first = 0; first < threads; first += kWarpLanes) {
    const uint32_t lanes = std::min<uint32_t>(threads - first, kWarpLanes);
    const LaneMask mask = lanes == kWarpLanes ? kAllLanes : (LaneMask{1} << lanes) - 1;
    cta->warps.push_back(std::make_unique<Warp>(*cta, first / kWarpLanes, mask));
  }
  cta->live_warps = static_cast<uint32_t>(cta->warps.size());
  cta->live_threads = threads;
  return cta;
}

void Machine::warp_exited(Warp& warp) {
  warp.extensions.end(warp);
  checker->warp_end(warp);
  if (--warp.cta.live_warps == 0) finish_cta(warp.cta);
}

void Machine::finish_cta(Cta& cta) {
  for (const AsyncOp* op : async.pending()) {
    if (op->cta == &cta) report(code::kPendingAtExit, "the CTA exits while pending: " + op->describe(), op->site);
  }
  async.complete_all_of(cta);
  cta.extensions.end(cta);
  checker->cta_end(cta);
  give_back(*cta.sm, cta.grid->config);
  ++cta.grid->ctas_done;
  cta_launched_dependents(cta, nullptr);
  if (--cta.cluster->live_ctas == 0) finish_cluster(*cta.cluster);
}

// Kept until the scheduler is out of its warps.
void Machine::finish_cluster(Cluster& cluster) {
  cluster.extensions.end(cluster);
  ready_clusters_.erase(&cluster);
  auto& live = cluster.grid->live;
  const auto found = std::find_if(live.begin(), live.end(), [&](const auto& item) { return item.get() == &cluster; });
  Grid& grid = *cluster.grid;
  finished_.push_back(std::move(*found));
  live.erase(found);
  if (live.empty() && grid.next_cluster == grid.clusters) finish_grid(grid);
}

void Machine::finish_grid(Grid& grid) {
  grid.done = true;
  grid.extensions.end(grid);
  checker->grid_end(grid);
  grid.completion.wake_all();
}

bool Machine::cancel_cluster(Grid& grid, Dim3* first_cta) {
  if (grid.next_cluster >= grid.clusters) return false;
  const LaunchConfig& config = grid.config;
  const Dim3 index = position(grid.next_cluster++, cluster_grid(config));
  *first_cta = {index.x * config.cluster.x, index.y * config.cluster.y, index.z * config.cluster.z};
  grid.ctas_done += config.cluster.count();
  grid.ctas_launched_dependents += config.cluster.count();
  return true;
}

}  // namespace ptxrun

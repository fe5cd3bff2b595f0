#include "check/checks.h"

#include <algorithm>
#include <stdexcept>

#include "check/checker.h"
#include "check/finding.h"
#include "check/region_shadow.h"

namespace ptxrun {

std::unique_ptr<Checker> make_checker(Machine& machine, CheckLevel level) {
  return std::make_unique<check::Checks>(machine, level);
}

}  // namespace ptxrun

namespace ptxrun::check {

namespace {

WarpState& state_of(Warp& warp) { return static_cast<WarpState&>(*warp.agent.state); }

RegionShadow* shadow_of(Region& region) { return static_cast<RegionShadow*>(region.state.get()); }

Effect effect_of(Access::Kind kind) {
  switch (kind) {
    case Access::Kind::Read:
      return Effect::Read;
    case Access::Kind::Write:
      return Effect::Write;
    default:
      return Effect::Update;
  }
}

bool acquires(ptxrun::Order order) { return order == ptxrun::Order::Acquire || order == ptxrun::Order::AcqRel; }
bool releases(ptxrun::Order order) { return order == ptxrun::Order::Release || order == ptxrun::Order::AcqRel; }

// Reads of the word find what others have handed on through it.
void read_word(WarpState& state, const Words& words, uint64_t offset, const Access& access) {
  words.collect(offset, state.domains, domains_within(access.scope), [&](int domain, const View& view) {
    if (acquires(access.order)) {
      state.clock.acquire(view);
    } else {
      state.fences.read[domain].join(view);
    }
  });
}

void write_word(WarpState& state, Words& words, uint64_t offset, const Access& access) {
  if (access.kind == Access::Kind::Write) words.forget(offset);
  View released;
  if (releases(access.order)) state.clock.release(released);
  for (int i = 0; i < domains_within(access.scope); ++i) {
    const View& view = releases(access.order) ? released : state.fences.released[i];
    if (!view.empty()) words.publish(offset, state.domains.of[i], view);
  }
}

void synchronise(WarpState& state, Words& words, uint64_t offset, uint64_t bytes, const Access& access) {
  constexpr uint64_t kWord = 4;
  for (uint64_t at = offset - offset % kWord; at < offset + bytes; at += kWord) {
    if (access.kind != Access::Kind::Write && !words.empty()) read_word(state, words, at, access);
    if (access.kind != Access::Kind::Read) write_word(state, words, at, access);
  }
}

}  // namespace

// Launches, CTAs, warps --------------------------------------------------------------------------------------------

void Checks::region_added(Region& region) {
  const bool traced = region.kind == Region::Kind::Shared || (region.kind == Region::Kind::Global && !region.readonly);
  if (level_ == CheckLevel::None || region.state) return;
  if (region.initialised && !(traced && tracks_order())) return;
  region.state = std::make_unique<RegionShadow>(pool_, region);
}

void Checks::grid_start(Grid& grid) {
  if (tracks_order() && grid.ctas() > kMaxCtaSerial - next_serial_)
    throw std::invalid_argument("more than 2^20 CTAs in one run with checks=full");
  GridRecord& record = grids_[grid.index];
  record.first_serial = next_serial_;
  const auto earlier = grids_.find(grid.index - 1);
  if (grid.config.pdl && earlier != grids_.end()) {
    const GridRecord& before = earlier->second;
    const View passed_on = before.passed_on.value_or(before.start);
    // What one cluster knows of itself need not be visible beyond it.
    record.start = before.clusters > 1 ? passed_on : before.start;
    record.start.raise_floor(passed_on.generic.floor());
  } else {
    record.start.raise_floor(next_serial_);
  }
  next_serial_ += static_cast<uint32_t>(grid.ctas());
}

void Checks::grid_end(Grid& grid) {
  grids_.at(grid.index).ended = true;
  // A launch may end before the one that it started beside. What lies below the floor of the first live one is past for
  // all that follow, too.
  uint32_t needed = 0;
  for (const auto& [index, record] : grids_) {
    needed = record.start.generic.floor();
    if (!record.ended) break;
  }
  std::erase_if(ctas_, [&](const auto& item) { return item.first < needed; });
}

uint32_t Checks::serial_of(const Cta& cta) { return grids_.at(cta.grid->index).first_serial + cta.linear; }

Checks::CtaRecord& Checks::record(const Cta& cta) { return ctas_[serial_of(cta)]; }

void Checks::cta_start(Cta& cta) {
  region_added(cta.shared);
  CtaRecord& made = record(cta);
  made.grid = cta.grid;
  made.linear = cta.linear;
  if (cta.rank == 0) ++grids_.at(cta.grid->index).clusters;
}

void Checks::cta_end(Cta& cta) {
  CtaRecord& ended = record(cta);
  if (tracks_order() && cta.cluster->ctas.size() > 1) check_remote_accesses(cta, ended);
  ended.pipes.clear();
  ended.ended = View();
}

void Checks::warp_end(Warp& warp) {
  if (!tracks_order() || warp.cta.cluster->ctas.size() == 1) return;
  CtaRecord& cta = record(warp.cta);
  state_of(warp).clock.release(cta.ended);
  cta.last = warp.site();
}

void Checks::check_remote_accesses(Cta& cta, const CtaRecord& record) {
  const uint32_t serial = serial_of(cta);
  const auto outlives = [&](const Entry& entry) {
    return !entry.is_many() && cta_serial_of(entry.epoch.agent) != serial && entry.epoch.agent != 0 &&
           !record.ended.generic.covers(entry.epoch) && !record.ended.executed.covers(entry.epoch);
  };
  shadow_of(cta.shared)->shadow.for_each_cell([&](uint64_t offset, const Cell& cell) {
    for (const auto* entries : {&cell.writes, &cell.reads}) {
      for (const Entry& entry : *entries) {
        if (!outlives(entry) || count_again(machine_.findings, code::kCluster, record.last.instr, entry.instr))
          continue;
        const Site other = site_of(entry);
        machine_.report(code::kCluster, "the CTA ends, and nothing orders that after an access to its shared memory",
                        record.last, &cta.shared, offset, &other);
      }
    }
  });
}

Domains Checks::domains_of(const Warp& warp) {
  const Cta& first = *warp.cta.cluster->ctas.front();
  return {{cta_domain(serial_of(warp.cta)), cluster_domain(serial_of(first)), kEverybody}};
}

void Checks::warp_start(Warp& warp) {
  const uint32_t serial = serial_of(warp.cta);
  CtaRecord& cta = record(warp.cta);
  warp.agent.id = agent_id(serial, static_cast<uint32_t>(cta.parties.size()));
  cta.parties.push_back({.is_warp = true, .warp = static_cast<uint16_t>(warp.index)});
  const View& start = grids_.at(warp.cta.grid->index).start;
  warp.agent.state = std::make_unique<WarpState>(warp.agent.id, start, domains_of(warp));
}

// The next launch starts after every CTA has let it: what each of them knew by then is past for it, too. Any of a CTA's
// warps may be the first to do so: all count.
void Checks::launched_dependents(Cta& cta, Warp* warp) {
  const uint32_t next = cta.grid->index + 1;
  if (!tracks_order() || next == machine_.grids.size() || !machine_.grids[next]->config.pdl) return;
  GridRecord& grid = grids_.at(cta.grid->index);
  View known = grid.start;
  if (warp != nullptr) {
    WarpClock& clock = state_of(*warp).clock;
    known = clock.seen();
    known.generic.raise(clock.step());
  }
  if (grid.passed_on) {
    grid.passed_on->meet(known);
  } else {
    grid.passed_on = known;
  }
}

void Checks::grid_dependency(Warp& warp, Grid&) {
  state_of(warp).clock.raise_floor(grids_.at(warp.cta.grid->index).first_serial);
}

// Memory -----------------------------------------------------------------------------------------------------------

void Checks::access(const Access& access, Region& region, uint64_t offset, uint64_t bytes) {
  RegionShadow* shadow = shadow_of(region);
  if (!shadow || !access.agent || access.agent->kind != AgentKind::Warp || bytes == 0) return;
  auto& state = static_cast<WarpState&>(*access.agent->state);
  Touch touch;
  touch.epoch = touch.issuer = state.clock.self();
  touch.seen = &state.clock.seen();
  touch.strong = access.order != ptxrun::Order::Weak || access.kind == Access::Kind::Atomic;
  touch.instr = access.site->instr;
  touch.warp = static_cast<uint16_t>(access.site->warp);
  if (access.read_only) touch.read_only_from = grids_.at(access.site->launch).first_serial;
  // An acquire takes effect before the access itself is judged, a release after it.
  const bool synchronises = touch.strong && tracks_order() && shadow->shared_between_agents;
  this->touch(region, offset, bytes, touch, effect_of(access.kind), *access.site);
  if (synchronises) synchronise(state, shadow->words, offset, bytes, access);
}

void Checks::touch(Region& region, uint64_t offset, uint64_t bytes, Touch touch, Effect effect, const Site& site) {
  RegionShadow* shadow = shadow_of(region);
  // Memory reports what lies outside.
  if (!shadow || offset >= region.bytes) return;
  bytes = std::min(bytes, region.bytes - offset);
  if (bytes == 0) return;
  touch.space = shadow->space;
  touch.tracked = tracks_order() && shadow->shared_between_agents;
  if (!touch.tracked) touch.epoch = touch.issuer = Epoch();
  shadow->shadow.touch(offset, bytes, touch, effect, conflicts_);
  if (!conflicts_.empty()) report(touch, site, &region);
}

Shadow& Checks::tmem_shadow(Sm& sm) {
  auto& shadow = tmem_[&sm];
  if (!shadow) shadow = std::make_unique<Shadow>(pool_, uint64_t{kTmemLanes} * kTmemColumns * 4, false);
  return *shadow;
}

void Checks::touch_tmem(Sm& sm, uint32_t lane, uint32_t column, uint32_t columns, Touch touch, Effect effect,
                        const Site& site) {
  // The instruction family reports what lies outside.
  if (level_ == CheckLevel::None || lane >= kTmemLanes || column >= kTmemColumns) return;
  columns = std::min<uint32_t>(columns, kTmemColumns - column);
  if (columns == 0) return;
  touch.space = CellSpace::Tensor;
  touch.path = Path::Tensor;
  touch.tracked = tracks_order();
  if (!touch.tracked) touch.epoch = touch.issuer = Epoch();
  tmem_shadow(sm).touch((uint64_t{lane} * kTmemColumns + column) * 4, uint64_t{columns} * 4, touch, effect, conflicts_);
  if (!conflicts_.empty()) report(touch, site, nullptr);
}

void Checks::tmem_allocated(Sm& sm, uint32_t column, uint32_t columns) {
  if (level_ == CheckLevel::None) return;
  for (uint64_t lane = 0; lane < kTmemLanes; ++lane) {
    tmem_shadow(sm).reset((lane * kTmemColumns + column) * 4, uint64_t{columns} * 4, false);
  }
}

void Checks::mbarrier_touch(Warp& warp, Region& region, uint64_t offset, bool first) {
  if (!tracks_order()) return;
  Touch touch = issue(warp, Pipe(), Proxy::Generic).touch_;
  touch.epoch = touch.issuer;
  touch.object = true;
  touch.strong = !first;  // uses are ordered by the object, the initialisation is not
  this->touch(region, offset, 8, touch, first ? Effect::Write : Effect::Read, warp.site());
}

void Checks::mbarrier_gone(Warp& warp, Region& region, uint64_t offset) {
  if (!tracks_order()) return;
  Touch touch = issue(warp, Pipe(), Proxy::Generic).touch_;
  touch.epoch = touch.issuer;
  touch.object = true;
  this->touch(region, offset, 8, touch, Effect::Write, warp.site());
}

// Asynchronous operations ------------------------------------------------------------------------------------------

Pipe& Checks::make_pipe(CtaRecord& record, uint32_t serial, const Party& party) {
  const uint64_t key = uint64_t{static_cast<uint8_t>(party.kind)} << 48 | uint64_t{party.warp} << 32 | party.detail;
  const auto [pipe, is_new] = record.pipes.try_emplace(key);
  if (is_new) {
    if (record.parties.size() == kMaxAgentsPerCta) throw std::invalid_argument("too many mbarriers in one checked CTA");
    pipe->second = Pipe(agent_id(serial, static_cast<uint32_t>(record.parties.size())));
    record.parties.push_back(party);
  }
  return pipe->second;
}

Pipe& Checks::pipe(Warp& warp, PipeKind kind, uint32_t lane) {
  return make_pipe(record(warp.cta), serial_of(warp.cta),
                   {.kind = kind, .warp = static_cast<uint16_t>(warp.index), .detail = lane});
}

Pipe& Checks::mbarrier_pipe(Cta& cta, uint32_t offset) {
  return make_pipe(record(cta), serial_of(cta), {.kind = PipeKind::Mbarrier, .detail = offset});
}

Issue Checks::issue(Warp& warp, const Pipe& pipe, Proxy proxy, bool in_order) {
  Touch touch;
  touch.epoch = pipe.open();
  touch.issuer = state_of(warp).clock.self();
  touch.seen = &state_of(warp).clock.seen();
  touch.path = proxy == Proxy::Generic ? Path::Generic : Path::Async;
  touch.in_order = in_order;
  touch.instr = warp.site().instr;
  touch.warp = static_cast<uint16_t>(warp.index);
  return Issue(this, warp, touch);
}

Issue Issue::through(const Pipe& pipe) const {
  Issue other = *this;
  other.touch_.epoch = pipe.open();
  return other;
}

void Issue::touch(Region& region, uint64_t offset, uint64_t bytes, Effect effect) {
  checks_->touch(region, offset, bytes, touch_, effect, warp_->site());
}

void Issue::reduce(Region& region, uint64_t offset, uint64_t bytes) {
  Touch strong = touch_;
  strong.strong = true;
  checks_->touch(region, offset, bytes, strong, Effect::Update, warp_->site());
}

void Issue::read_tensor_map(Region& region, uint64_t offset, uint64_t bytes) {
  Touch map = touch_;
  map.path = Path::TensorMap;
  checks_->touch(region, offset, bytes, map, Effect::Read, warp_->site());
}

void Issue::read_tmem(Sm& sm, uint32_t lane, uint32_t column, uint32_t columns) {
  checks_->touch_tmem(sm, lane, column, columns, touch_, Effect::Read, warp_->site());
}

void Issue::write_tmem(Sm& sm, uint32_t lane, uint32_t column, uint32_t columns) {
  checks_->touch_tmem(sm, lane, column, columns, touch_, Effect::Write, warp_->site());
}

void Issue::undefine_tmem(Sm& sm, uint32_t lane, uint32_t column, uint32_t columns) {
  checks_->touch_tmem(sm, lane, column, columns, touch_, Effect::Undefine, warp_->site());
}

bool Checks::defined(Region& region, uint64_t offset, uint64_t bytes) {
  const RegionShadow* shadow = shadow_of(region);
  return !shadow || offset + bytes > region.bytes || shadow->shadow.initialised(offset, bytes);
}

bool Checks::defined_tmem(Sm& sm, uint32_t lane, uint32_t column, uint32_t columns) {
  if (level_ == CheckLevel::None) return true;
  return tmem_shadow(sm).initialised((uint64_t{lane} * kTmemColumns + column) * 4, uint64_t{columns} * 4);
}

// Synchronisation --------------------------------------------------------------------------------------------------

void Checks::release(Warp& warp, View& into) {
  if (tracks_order()) state_of(warp).clock.release(into);
}
void Checks::acquire(Warp& warp, const View& from) {
  if (tracks_order()) state_of(warp).clock.acquire(from);
}
void Checks::fence_async(Warp& warp, FenceSpace space) {
  if (tracks_order()) state_of(warp).clock.fence_async(space);
}
void Checks::fence_tensormap(Warp& warp) {
  if (tracks_order()) state_of(warp).clock.fence_tensormap();
}
void Checks::tcgen05_before_thread_sync(Warp& warp) {
  if (tracks_order()) state_of(warp).clock.tcgen05_before_thread_sync();
}
void Checks::tcgen05_after_thread_sync(Warp& warp) {
  if (tracks_order()) state_of(warp).clock.tcgen05_after_thread_sync();
}
void Checks::waited(Warp& warp, Epoch epoch) {
  if (tracks_order()) state_of(warp).clock.waited(epoch);
}
void Checks::announce(View& into, Epoch epoch) {
  if (!tracks_order()) return;
  into.generic.raise(epoch);
  into.tcgen05.raise(epoch);
}
Epoch Checks::mark(Warp& warp) { return tracks_order() ? state_of(warp).clock.step() : Epoch(); }
bool Checks::knows(const View& view, Epoch epoch) const {
  return view.generic.covers(epoch) || view.executed.covers(epoch);
}
View Checks::executed_before(Warp& warp) {
  View view;
  if (tracks_order()) state_of(warp).clock.executed_before(view);
  return view;
}

void Checks::fence(Warp& warp, Scope scope, ptxrun::Order order) {
  if (!tracks_order()) return;
  WarpState& state = state_of(warp);
  const int within = domains_within(scope);
  if (order != ptxrun::Order::Release) {
    for (int i = 0; i < within; ++i) {
      state.clock.acquire(state.fences.read[i]);
      state.fences.read[i] = View();
    }
  }
  if (order == ptxrun::Order::Acquire) return;
  View released;
  state.clock.release(released);
  for (int i = 0; i < within; ++i) state.fences.released[i] = released;
}

void Checks::release_fenced(Warp& warp, Scope scope, View& into) {
  if (tracks_order()) into.join(state_of(warp).fences.released[domains_within(scope) - 1]);
}

}  // namespace ptxrun::check

// One thread, deterministic: which warp runs next, when asynchronous operations complete, when nothing can go on.
#include <algorithm>
#include <cstdio>
#include <utility>

#include "exec/machine.h"

namespace ptxrun {
namespace {

// Rounds over a cluster's warps before the next cluster has its turn.
constexpr int kClusterRounds = 64;
// Rounds in which polling warps see no change before the run counts as a deadlock, and the time each of them takes.
constexpr uint32_t kMaxIdleRounds = 1000;
constexpr uint64_t kIdleTime = 10000;
constexpr size_t kTraceLines = 100;

std::string hex(uint64_t value) {
  char text[20];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

std::string state_of(const Group& group) {
  switch (group.state) {
    case GroupState::Parked:
      return "waits for " + group.waiting->describe();
    case GroupState::Await:
      return "waits for other lanes of the warp";
    case GroupState::Backoff:
      return "polls";
    default:
      return "can run";
  }
}

Site site_of(const Warp& warp, const Group& group) {
  return {&warp.kernel, &warp.kernel.code[group.pc], warp.cta.grid->index, warp.cta.linear, warp.index, group.lanes};
}

// Its lanes wait for each other at different instructions.
bool waits_for_itself(const Warp& warp) {
  const auto awaits = [](const Group& group) { return group.state == GroupState::Await; };
  return !warp.groups().empty() && std::all_of(warp.groups().begin(), warp.groups().end(), awaits);
}

template <class F>
void for_warps(const Machine& machine, const F& f) {
  for (const auto& grid : machine.grids) {
    for (const auto& cluster : grid->live) {
      for (const auto& cta : cluster->ctas) {
        for (const auto& warp : cta->warps) f(*warp);
      }
    }
  }
}

void trace_warp(const Warp& warp, std::vector<std::string>& lines) {
  for (const Group& group : warp.groups()) {
    const ast::Instruction& source = *warp.kernel.code[group.pc].source;
    lines.push_back("launch " + std::to_string(warp.cta.grid->index) + " CTA " + std::to_string(warp.cta.linear) +
                    " warp " + std::to_string(warp.index) + " lanes " + hex(group.lanes) + " line " +
                    std::to_string(source.line) + " `" + source.text + "`: " + state_of(group));
  }
}

}  // namespace

void Machine::run() {
  while (!halted_) {
    const bool started = start_clusters();
    const bool ran = run_clusters();
    finished_.clear();
    if (ran || started) continue;
    if (std::all_of(grids.begin(), grids.end(), [](const auto& grid) { return grid->done; })) break;
    if (!wake_something()) report_deadlock();
  }
  while (!halted_ && async.force_one()) {
  }
  if (!halted_) extensions.end(*this);
}

// Every ready cluster has a turn; polling warps run again if something has changed meanwhile.
bool Machine::run_clusters() {
  std::vector<Cluster*> turn(ready_clusters_.begin(), ready_clusters_.end());
  if (turn.empty()) return false;
  if (options.schedule == Schedule::Random) std::shuffle(turn.begin(), turn.end(), random_);
  for (Cluster* cluster : turn) {
    if (halted_) return true;
    if (!run_cluster(*cluster)) ready_clusters_.erase(cluster);
  }
  if (memory.changes != seen_changes_) end_back_off();
  return true;
}

// False if none of its warps can run on.
bool Machine::run_cluster(Cluster& cluster) {
  std::vector<Warp*> warps;
  for (auto& cta : cluster.ctas) {
    for (auto& warp : cta->warps) warps.push_back(warp.get());
  }
  const bool random = options.schedule == Schedule::Random;
  for (int round = 0; round < kClusterRounds; ++round) {
    bool any = false;
    if (random) std::shuffle(warps.begin(), warps.end(), random_);
    for (Warp* warp : warps) {
      if (!warp->runnable()) continue;
      any = true;
      warp->run(random ? 1 + static_cast<uint32_t>(random_() % options.quantum) : options.quantum);
      async.step();
      if (halted_ || cluster.live_ctas == 0) return false;
    }
    if (!any) return false;
  }
  return true;
}

bool Machine::end_back_off() {
  if (memory.changes != seen_changes_) idle_rounds_ = 0;
  seen_changes_ = memory.changes;
  bool any = false;
  for (Warp* warp : std::exchange(backed_off_, {})) any |= warp->end_back_off();
  return any;
}

// No warp can run: an operation completes, or those that poll look again.
bool Machine::wake_something() {
  if (async.force_one()) return true;
  for (const auto& wake : when_stuck) {
    if (wake()) return true;
  }
  if (idle_rounds_ + 1 >= kMaxIdleRounds || !end_back_off()) return false;
  now_ += kIdleTime;
  ++idle_rounds_;
  return true;
}

void Machine::report_deadlock() {
  std::vector<std::string> lines;
  Site site;
  for_warps(*this, [&](const Warp& warp) {
    if (site.kernel == nullptr && !warp.groups().empty()) site = site_of(warp, warp.groups().front());
    if (waits_for_itself(warp)) {
      report(code::kNotConverged, "the other lanes of the warp never come here", site_of(warp, warp.groups().front()));
    }
    trace_warp(warp, lines);
  });
  for (const AsyncOp* op : async.pending()) lines.push_back("pending: " + op->describe());
  write_trace(lines);
  const std::string first = lines.empty() ? "no CTA can start" : lines.front();
  report(code::kDeadlock, "no warp can run and nothing is pending; " + first, site);
  halted_ = true;
}

void Machine::report_limit(const Warp& warp) {
  std::vector<std::string> lines;
  for_warps(*this, [&](const Warp& other) { trace_warp(other, lines); });
  write_trace(lines);
  Site site{&warp.kernel, nullptr, warp.cta.grid->index, warp.cta.linear, warp.index, warp.live};
  for (const Group& group : warp.groups()) {
    if (group.state == GroupState::Ready) site = site_of(warp, group);
  }
  report(code::kInstructionLimit,
         "the run has not ended after " + std::to_string(options.max_instructions) + " instructions", site);
}

void Machine::write_trace(const std::vector<std::string>& lines) {
  for (size_t i = 0; i < std::min(lines.size(), kTraceLines); ++i) trace_ += lines[i] + "\n";
  if (lines.size() > kTraceLines) trace_ += std::to_string(lines.size() - kTraceLines) + " more\n";
}

}  // namespace ptxrun

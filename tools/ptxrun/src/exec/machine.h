// The whole: memory, launches, scheduler, asynchronous operations, findings, counters.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "check/finding.h"
#include "decode/program.h"
#include "exec/async.h"
#include "exec/cta.h"
#include "exec/warp.h"
#include "memory/memory.h"

namespace ptxrun {

enum class CheckLevel : uint8_t { None, Memory /* bounds, initialisation */, Full /* and races */ };

struct Options {
  Schedule schedule = Schedule::Early;
  uint64_t seed = 0;
  uint32_t sms = 132;
  uint32_t shared_per_sm = 228 * 1024;
  uint32_t threads_per_sm = 2048;
  uint32_t registers_per_sm = 65536;
  uint32_t ctas_per_sm = 32;
  uint32_t quantum = 256;  // instructions a warp runs before the next one
  CheckLevel checks = CheckLevel::Full;
  uint32_t max_findings = 100;    // the run stops after so many
  uint64_t max_instructions = 0;  // 0: no limit
};

struct LaunchCounters {
  uint64_t instructions = 0;
  std::vector<uint64_t> by_opcode;                      // of Program::opcodes
  std::unordered_map<std::string, uint64_t> mma_steps;  // by kind and shape, counted by the MMA families
  uint64_t max_bytes_in_flight_cta = 0, max_bytes_in_flight_sm = 0;
};

class Machine {
 public:
  explicit Machine(Options options);
  ~Machine();

  const Options options;
  std::vector<Finding> findings;
  Memory memory;
  AsyncQueue async;
  std::unique_ptr<Checker> checker;
  std::vector<std::unique_ptr<Grid>> grids;
  std::vector<Sm> sms;

  // The launches run as one stream: each after the one before, or beside its end with pdl. Throws std::invalid_argument
  // for a shape that the kernel or the machine does not allow.
  uint32_t launch(LaunchConfig config);
  // Runs all launches to the end, to a trap or to a deadlock (a finding).
  void run();

  // A finding at a site; `region` and `offset` where memory is concerned. `other`: the party it conflicts with.
  void report(const char* code, const std::string& message, const Site& site, const Region* region = nullptr,
              uint64_t offset = 0, const Site* other = nullptr);

  // Whose instruction is being executed; nullptr while asynchronous operations complete.
  Agent* actor = nullptr;
  LaunchCounters& counters(const Grid& grid) { return counters_[grid.index]; }
  const LaunchCounters& counters(size_t launch) const { return counters_[launch]; }
  // Time of %clock and %globaltimer: instructions executed by the machine so far.
  uint64_t now() const { return now_; }
  void tick(const Warp& warp, uint64_t instructions);
  void note_bytes_in_flight(Cta& cta, int64_t change);

  // Register files are used again: fresh pages are what costs most of a short warp. Contents are left over.
  std::vector<uint32_t> take_registers(size_t words);
  void return_registers(std::vector<uint32_t> registers) { spare_registers_.push_back(std::move(registers)); }

  void warp_ready(Warp& warp) { ready_clusters_.insert(warp.cta.cluster); }
  void warp_backed_off(Warp& warp) { backed_off_.push_back(&warp); }
  // By a warp of it, or by its end (nullptr).
  void cta_launched_dependents(Cta& cta, Warp* warp);
  void warp_exited(Warp& warp);
  void halt(const std::string& reason);
  bool halted() const { return halted_; }
  // What every warp stands at and waits for, the pending operations; set when a run ends in a deadlock.
  const std::string& trace() const { return trace_; }
  // Text that kernels print.
  std::string output;

  // Takes the next cluster of the grid that has not started, as clusterlaunchcontrol.try_cancel does; false if none.
  bool cancel_cluster(Grid& grid, Dim3* first_cta);

  // Asked now and then while warps run: true ends the run.
  std::function<bool()> interrupted;

  // Asked when no warp can run and no operation is ready: true if lanes were woken (a wait of limited time has ended).
  std::vector<std::function<bool()>> when_stuck;

  Extensions<Machine> extensions;
  template <class T>
  T& ext() {
    return extensions.get<T>(*this);
  }

 private:
  void place_variables(Grid& grid);
  uint64_t add_grid_workspace(uint32_t launch);
  bool may_start(const Grid& grid) const;
  bool start_clusters();
  bool start_cluster(Grid& grid);
  std::vector<Sm*> place_cluster(const Grid& grid);  // empty: no room
  bool fits(const Grid& grid, const Sm& sm) const;
  bool all_fit(const LaunchConfig& config) const;
  std::unique_ptr<Cta> make_cta(Grid& grid, Cluster& cluster, uint32_t rank, Sm& sm);
  void finish_cta(Cta& cta);
  void finish_cluster(Cluster& cluster);
  void finish_grid(Grid& grid);
  bool run_clusters();
  bool wake_something();
  bool run_cluster(Cluster& cluster);
  bool end_back_off();
  void report_deadlock();
  void report_limit(const Warp& warp);
  void write_trace(const std::vector<std::string>& lines);

  struct ByAge {
    bool operator()(const Cluster* a, const Cluster* b) const { return a->age < b->age; }
  };
  std::set<Cluster*, ByAge> ready_clusters_;
  std::vector<std::unique_ptr<Cluster>> finished_;
  std::vector<Warp*> backed_off_;
  std::vector<std::vector<uint32_t>> spare_registers_;
  std::map<std::pair<const Program*, uint32_t>, uint64_t> variable_addresses_;
  std::vector<LaunchCounters> counters_;
  std::mt19937_64 random_;
  uint64_t now_ = 0, instructions_ = 0, next_question_ = 0, next_age_ = 0, seen_changes_ = 0;
  uint32_t idle_rounds_ = 0;
  bool halted_ = false;
  std::string trace_;
};

}  // namespace ptxrun

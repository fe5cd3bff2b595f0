// Grids, clusters, CTAs and the SMs that hold them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "decode/program.h"
#include "exec/agent.h"
#include "exec/extension.h"
#include "exec/wait.h"
#include "memory/memory.h"
#include "memory/tmem.h"

namespace ptxrun {

class Machine;
class Warp;
struct Grid;

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
  uint64_t count() const { return uint64_t{x} * y * z; }
};

// Capacity and use of one SM.
struct Sm {
  uint32_t index = 0;
  uint32_t shared_used = 0, threads_used = 0, registers_used = 0, ctas = 0;
  uint64_t bytes_in_flight = 0;
  std::unique_ptr<TensorMemory> tmem;  // made on first use
  Extensions<Sm> extensions;
  template <class T>
  T& ext() {
    return extensions.get<T>(*this);
  }
};

struct Cluster {
  Grid* grid = nullptr;
  Dim3 index;
  std::vector<std::unique_ptr<struct Cta>> ctas;  // by rank; kept until the last one has exited
  uint32_t live_ctas = 0;
  uint64_t age = 0;  // order of start, over all grids
  Extensions<Cluster> extensions;
  template <class T>
  T& ext() {
    return extensions.get<T>(*this);
  }
};

struct Cta {
  Machine* machine = nullptr;
  Grid* grid = nullptr;
  Cluster* cluster = nullptr;
  Sm* sm = nullptr;
  Dim3 index;
  uint32_t linear = 0;  // in the grid
  uint32_t rank = 0;    // in the cluster
  Dim3 cluster_index;   // position in the cluster
  Region shared;        // static and dynamic shared memory, from address 0 of the window
  std::vector<std::unique_ptr<Warp>> warps;
  uint32_t live_warps = 0;
  uint32_t live_threads = 0;
  bool launched_dependents = false;
  uint64_t bytes_in_flight = 0;
  Extensions<Cta> extensions;
  template <class T>
  T& ext() {
    return extensions.get<T>(*this);
  }
  bool exited() const { return live_warps == 0; }
};

struct LaunchConfig {
  const Program* program = nullptr;
  const Kernel* kernel = nullptr;
  Dim3 grid, block, cluster;
  uint32_t dynamic_shared = 0;
  std::vector<uint8_t> params;  // the kernel's parameter block
  bool pdl = false;             // may start before its predecessor has ended
  bool cooperative = false;
  bool non_portable_cluster = false;  // more than 8 CTAs are asked for on purpose
  uint32_t registers = 0;             // a thread, for residency and setmaxnreg; 0: not limited
};

// A launch and its progress.
struct Grid {
  Machine* machine = nullptr;
  uint32_t index = 0;  // of the launch in the run
  LaunchConfig config;
  Region params;
  std::vector<uint64_t> variable_address;  // of Program::variables
  uint64_t workspace = 0;                  // address of what cooperative groups keep for the grid; 0: not cooperative
  uint64_t next_cluster = 0, clusters = 0;
  uint64_t ctas_done = 0, ctas_launched_dependents = 0;
  std::vector<std::unique_ptr<Cluster>> live;
  bool started = false, done = false;
  struct Completion : WaitObject {
    Grid* grid = nullptr;
    std::string describe() const override;
  } completion;  // griddepcontrol.wait of the next launch parks here
  Extensions<Grid> extensions;
  template <class T>
  T& ext() {
    return extensions.get<T>(*this);
  }
  uint64_t ctas() const { return config.grid.count(); }
};

}  // namespace ptxrun

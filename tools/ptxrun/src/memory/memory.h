// Address spaces, allocations and the one path by which every access goes: bounds, checker, counters.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "exec/agent.h"

namespace ptxrun {

class Machine;
class Warp;
struct Cta;
struct Grid;

enum class Space : uint8_t { Generic, Global, Const, Param, Local, Shared, SharedCluster };

// Generic addresses. A shared::cluster address is 32 bits: rank of the CTA in its cluster << 24 | offset, and lies at
// kSharedWindow in the generic space; a shared::cta address is the shared::cluster address of the own CTA. Local and
// param addresses are offsets into their windows. Everything else is global (const included).
constexpr uint64_t kSharedWindow = 0x0100'0000'0000;
constexpr uint64_t kLocalWindow = 0x0200'0000'0000;
constexpr uint64_t kParamWindow = 0x0300'0000'0000;
constexpr uint64_t kWindowSize = 0x0100'0000'0000;
constexpr uint64_t kGlobalBase = 0x7000'0000'0000;
constexpr int kSharedRankShift = 24;
constexpr uint32_t kSharedBase = 1024;  // offset of the first variable: the hardware keeps the bytes before it

enum class Proxy : uint8_t { Generic, Async, Tensor /* tcgen05 and wgmma operands in shared memory are Async */ };
enum class Order : uint8_t { Weak, Volatile, Relaxed, Acquire, Release, AcqRel };
enum class Scope : uint8_t { None, Cta, Cluster, Gpu, Sys };

// What the checker keeps of an allocation; src/check derives from it.
struct RegionState {
  virtual ~RegionState() = default;
};

struct Region {
  enum class Kind : uint8_t { Global, Shared, Param, Local };
  Kind kind = Kind::Global;
  uint64_t base = 0;  // generic address; for Shared that of the own CTA's rank
  uint64_t bytes = 0;
  uint8_t* data = nullptr;
  std::string name;
  bool readonly = false;
  bool initialised = false;  // contents given by the host: no tracking of uninitialised bytes
  Cta* cta = nullptr;        // Shared
  uint32_t index = 0;        // Global: number of the buffer
  uint64_t bytes_read = 0, bytes_written = 0;
  std::unique_ptr<RegionState> state;
  std::vector<uint8_t> storage;                          // owned contents; empty if `data` is the caller's
  std::vector<std::unique_ptr<uint32_t[]>> read_counts;  // by page of kCountPage bytes: bytes read of each 16-byte cell
};
constexpr uint64_t kCountPage = 1 << 16;

struct Access {
  enum class Kind : uint8_t { Read, Write, Atomic };
  Kind kind = Kind::Read;
  Proxy proxy = Proxy::Generic;
  Order order = Order::Weak;
  Scope scope = Scope::None;
  bool read_only = false;  // ld.global.nc: nothing in the launch may write the bytes
  Agent* agent = nullptr;
  const Site* site = nullptr;
};

// The checker as the rest sees it; src/check implements it. Calls come in program order of the agent.
class Checker {
 public:
  virtual ~Checker() = default;
  virtual void region_added(Region&) {}
  virtual void grid_start(Grid&) {}
  virtual void grid_end(Grid&) {}
  virtual void cta_start(Cta&) {}
  virtual void cta_end(Cta&) {}
  virtual void warp_start(Warp&) {}
  virtual void warp_end(Warp&) {}
  // Before the bytes [offset, offset + bytes) of the region are read, written or updated. Lanes of a warp with adjacent
  // addresses come as one range.
  virtual void access(const Access&, Region&, uint64_t /*offset*/, uint64_t /*bytes*/) {}
  // fence{.acq_rel,.sc}, membar: order among generic accesses at the scope.
  virtual void fence(Warp&, Scope, Order) {}
  // The CTA lets the next launch start, by this warp (each that does so) or, if none did, by its end (nullptr).
  virtual void launched_dependents(Cta&, Warp*) {}
  // griddepcontrol.wait has returned: the earlier grid's writes are visible.
  virtual void grid_dependency(Warp&, Grid& /*earlier*/) {}
  // bar.warp.sync and the other warp-synchronous instructions order the lanes of one agent: no call.
};

struct Place {
  Region* region = nullptr;  // nullptr: no allocation holds the address
  uint64_t offset = 0;
};

class Memory {
 public:
  explicit Memory(Machine& machine) : machine_(machine) {}

  // A global allocation over the caller's bytes (kept alive by the caller) or over its own, poisoned, uninitialised.
  // At `address` (a multiple of 16), or at one that the memory chooses if it is 0.
  Region& add_global(uint64_t address, uint8_t* data, uint64_t bytes, std::string name, bool readonly,
                     bool initialised);
  Region& add_global(uint64_t bytes, std::string name);
  Region* find_global(uint64_t address);
  const std::vector<std::unique_ptr<Region>>& globals() const { return globals_; }

  // Where an address of a space lies. `cta` gives the meaning of shared, local and param addresses; `warp` and `lane`
  // that of local ones (may be absent otherwise).
  Place find(Space space, uint64_t address, Cta* cta, Warp* warp = nullptr, int lane = 0);

  // `bytes` at an address for one access: bounds are checked, the checker and the counters are told. Returns the bytes,
  // or nullptr after an out-of-bounds (or write to read-only) finding; the caller then reads zeros or drops the write.
  // A write or atomic is told before the caller changes the bytes. Asynchronous operations come without an agent: only
  // bounds are checked then, since the checker was told of them at issue.
  uint8_t* touch(const Access& access, Space space, uint64_t address, uint64_t bytes, Cta* cta);
  uint8_t* touch(const Access& access, Region& region, uint64_t offset, uint64_t bytes);

  void report_bad(const Access& access, const Region* region, uint64_t offset, uint64_t bytes);

  // Changes to memory so far, atomics that changed nothing not counted: polling is in vain until this moves.
  uint64_t changes = 0;
  void note_change(Agent* agent) {
    ++changes;
    if (agent != nullptr) ++agent->effects;
  }

 private:
  void count(const Access& access, Region& region, uint64_t offset, uint64_t bytes);
  Machine& machine_;
  std::vector<std::unique_ptr<Region>> globals_;  // by address
  Region* last_ = nullptr;
  uint64_t next_base_ = kGlobalBase;
};

}  // namespace ptxrun

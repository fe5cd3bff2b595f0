// The checker: clocks of warps and pipes, shadows of memory, findings. Instruction families that synchronise or issue
// asynchronous operations talk to it directly.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "check/pipe.h"
#include "check/shadow.h"
#include "check/view.h"
#include "check/words.h"
#include "exec/machine.h"

namespace ptxrun::check {

class Checks;
struct RegionShadow;
struct WarpState;

// What an asynchronous operation will do to memory. Told at issue, in the order of its effects; the operation's own
// accesses, when it completes, then go through Memory::touch without an agent.
class Issue {
 public:
  void read(Region& region, uint64_t offset, uint64_t bytes) { touch(region, offset, bytes, Effect::Read); }
  void write(Region& region, uint64_t offset, uint64_t bytes) { touch(region, offset, bytes, Effect::Write); }
  // cp.reduce.async.bulk: reductions of the same bytes do not race with each other.
  void reduce(Region& region, uint64_t offset, uint64_t bytes);
  void read_tensor_map(Region& region, uint64_t offset, uint64_t bytes);
  // Tensor memory: `columns` cells from `column` on in one lane.
  void read_tmem(Sm& sm, uint32_t lane, uint32_t column, uint32_t columns);
  void write_tmem(Sm& sm, uint32_t lane, uint32_t column, uint32_t columns);
  // What the accesses that follow are arranged like; a reader's layout must be that of the writer.
  void set_layout(Layout layout) { touch_.layout = layout; }
  // Undefined bytes may be read; the operation makes its results undefined accordingly.
  void set_lenient(bool lenient) { touch_.lenient = lenient; }
  void undefine_tmem(Sm& sm, uint32_t lane, uint32_t column, uint32_t columns);
  // The same operation's other side (source and destination may be announced by different pipes).
  Issue through(const Pipe& pipe) const;

 private:
  friend class Checks;
  Issue(Checks* checks, Warp& warp, const Touch& touch) : checks_(checks), warp_(&warp), touch_(touch) {}
  void touch(Region& region, uint64_t offset, uint64_t bytes, Effect effect);
  Checks* checks_;
  Warp* warp_;
  Touch touch_;
};

class Checks final : public Checker {
 public:
  Checks(Machine& machine, CheckLevel level) : machine_(machine), level_(level) {}

  void region_added(Region& region) override;
  void grid_start(Grid& grid) override;
  void grid_end(Grid& grid) override;
  void cta_start(Cta& cta) override;
  void cta_end(Cta& cta) override;
  void warp_start(Warp& warp) override;
  void warp_end(Warp& warp) override;
  void access(const Access& access, Region& region, uint64_t offset, uint64_t bytes) override;
  void fence(Warp& warp, Scope scope, ptxrun::Order order) override;
  void launched_dependents(Cta& cta, Warp* warp) override;
  void grid_dependency(Warp& warp, Grid& earlier) override;

  // Synchronisation. A barrier, an mbarrier phase or a group keeps a View; these do nothing below level Full.
  void release(Warp& warp, View& into);
  // By a relaxed operation: what the warp's last release fence of the scope had covered.
  void release_fenced(Warp& warp, Scope scope, View& into);
  void acquire(Warp& warp, const View& from);
  void fence_async(Warp& warp, FenceSpace space);
  void fence_tensormap(Warp& warp);
  void tcgen05_before_thread_sync(Warp& warp);
  void tcgen05_after_thread_sync(Warp& warp);
  // The warp has waited for its own asynchronous operations up to the epoch.
  void waited(Warp& warp, Epoch epoch);
  // Completion of the operations up to the epoch is announced through the view (tcgen05.commit, noinc arrivals).
  void announce(View& into, Epoch epoch);
  // A point in the life of a warp, and whether a view shows that it lies in the past.
  Epoch mark(Warp& warp);
  bool knows(const View& view, Epoch epoch) const;
  // What the completion of an operation that is issued now shows to be past. Nothing of it becomes visible.
  View executed_before(Warp& warp);

  // Asynchronous operations.
  Pipe& pipe(Warp& warp, PipeKind kind, uint32_t lane = 0);
  Pipe& mbarrier_pipe(Cta& cta, uint32_t offset);
  // `in_order`: operations of this pipe take effect in the order of their issue (tcgen05.mma, cp).
  Issue issue(Warp& warp, const Pipe& pipe, Proxy proxy, bool in_order = false);

  // mbarriers in shared memory: `first` makes the bytes an object, otherwise they are used as one.
  void mbarrier_touch(Warp& warp, Region& region, uint64_t offset, bool first);
  void mbarrier_gone(Warp& warp, Region& region, uint64_t offset);
  // Whether all of the bytes, or cells, were written. True below level Memory.
  bool defined(Region& region, uint64_t offset, uint64_t bytes);
  bool defined_tmem(Sm& sm, uint32_t lane, uint32_t column, uint32_t columns);
  // Tensor memory was allocated: nothing in these columns is initialised.
  void tmem_allocated(Sm& sm, uint32_t column, uint32_t columns);

  bool tracks_order() const { return level_ == CheckLevel::Full; }

 private:
  friend class Issue;
  struct CtaRecord {
    Grid* grid = nullptr;
    uint32_t linear = 0;
    View ended;  // what the warps that have ended knew
    Site last;   // where the last of them ended
    std::vector<Party> parties;
    std::unordered_map<uint64_t, Pipe> pipes;
  };
  struct GridRecord {
    uint32_t first_serial = 0;
    View start;                     // what is past for all of the grid
    std::optional<View> passed_on;  // and for the next one, if it starts beside this one
    uint64_t clusters = 0;          // that have started
    bool ended = false;
  };
  CtaRecord& record(const Cta& cta);
  uint32_t serial_of(const Cta& cta);
  Pipe& make_pipe(CtaRecord& record, uint32_t serial, const Party& party);
  void touch(Region& region, uint64_t offset, uint64_t bytes, Touch touch, Effect effect, const Site& site);
  void touch_tmem(Sm& sm, uint32_t lane, uint32_t column, uint32_t columns, Touch touch, Effect effect,
                  const Site& site);
  Shadow& tmem_shadow(Sm& sm);
  Domains domains_of(const Warp& warp);
  // Accesses of other CTAs to the shared memory that goes, unless its CTA knew of them.
  void check_remote_accesses(Cta& cta, const CtaRecord& record);
  // Findings of the conflicts collected in `conflicts_`.
  void report(const Touch& touch, const Site& site, const Region* region);
  const char* classify(const Touch& touch, const Conflict& conflict) const;
  std::string explain(const Conflict& conflict, const char* code) const;
  Party party_of(AgentId agent) const;
  Site site_of(const Entry& entry) const;

  Machine& machine_;
  const CheckLevel level_;
  std::shared_ptr<CellPool> pool_ = std::make_shared<CellPool>();  // outlives the shadows of memory's regions
  std::unordered_map<uint32_t, CtaRecord> ctas_;                   // by serial number
  std::map<uint32_t, GridRecord> grids_;                           // by launch index
  std::unordered_map<const Sm*, std::unique_ptr<Shadow>> tmem_;
  uint32_t next_serial_ = 1;
  std::vector<RangeConflict> conflicts_;
};

// The machine's checker.
inline Checks& checks(Machine& machine) { return static_cast<Checks&>(*machine.checker); }

}  // namespace ptxrun::check

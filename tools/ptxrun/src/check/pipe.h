// Asynchronous operations in the vector clocks: who announces their completion.
#pragma once

#include <cstdint>
#include <string>

#include "check/clock.h"

namespace ptxrun::check {

// Operations whose completion is announced by the same thing share one agent, however many they are: the clock counts
// the announcements (phases, groups, commits). An operation is recorded in memory, when it is issued, with the epoch of
// the announcement that will include it; whoever observes that announcement knows the epoch. So an access is judged by
// what was observed before it and not by when the operation happens to run, and the verdict is the same under every
// schedule.
enum class PipeKind : uint8_t {
  Mbarrier,   // copies with complete_tx on one mbarrier; announced by its phases
  CpAsync,    // non-bulk copies of a warp; by cp.async.wait_group or mbarrier.arrive.noinc
  BulkRead,   // a thread's bulk stores, reading their source; by cp.async.bulk.wait_group.read
  BulkWrite,  // the same, writing their destination; by cp.async.bulk.wait_group
  Wgmma,      // by wgmma.wait_group
  Tcgen05,    // a thread's tcgen05.mma, cp, shift; by tcgen05.commit
  TmemLoad,   // a warp's tcgen05.ld; by tcgen05.wait::ld
  TmemStore,  // a warp's tcgen05.st; by tcgen05.wait::st
};

struct Party {
  bool is_warp = false;
  PipeKind kind = PipeKind::Mbarrier;
  uint16_t warp = 0;    // whose pipe it is
  uint32_t detail = 0;  // lane, or the mbarrier's offset in shared memory
};
// Whose access it was, in words.
std::string describe(const Party& party);

class Pipe {
 public:
  Pipe() = default;
  explicit Pipe(AgentId id) : id_(id) {}
  // Of operations issued now.
  Epoch open() const { return {id_, clock_}; }
  // Ends what is announced together: everything issued before has an epoch covered by the returned one.
  Epoch close() { return {id_, clock_++}; }

 private:
  AgentId id_ = 0;
  uint32_t clock_ = 1;
};

}  // namespace ptxrun::check

// Bulk copies (cp.async.bulk and .tensor, cp.reduce): what they move, what they signal, how threads wait for them.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "check/checks.h"
#include "decode/decoder.h"
#include "exec/machine.h"
#include "ops/mbarrier.h"

namespace ptxrun::ops {

enum class ReduceOp : uint8_t { None, Add, Min, Max, Inc, Dec, And, Or, Xor };
enum class ReduceType : uint8_t { U32, S32, U64, S64, F16, BF16, F32, F64, B32, B64 };
// to[i] = op(to[i], from[i]) for the elements of `bytes` bytes.
void reduce_bytes(ReduceOp op, ReduceType type, uint8_t* to, const uint8_t* from, uint64_t bytes);

// Groups of a thread (cp.async.bulk.commit_group).
struct BulkGroup {
  uint32_t pending = 0;  // copies under way
  check::Epoch read, written;
};

struct BulkThread : WaitObject {
  std::deque<std::shared_ptr<BulkGroup>> committed;  // oldest first, from the first that may be pending
  std::shared_ptr<BulkGroup> open = std::make_shared<BulkGroup>();
  bool unread = false;  // a copy was issued since the last wait for all groups
  uint32_t warp = 0, lane = 0;
  std::string describe() const override;
};

struct BulkThreads : Extension<Warp> {
  explicit BulkThreads(Warp& warp) : warp(warp) {}
  Warp& warp;
  std::map<int, BulkThread> at;  // by lane
  BulkThread& of(int lane);
  void on_end(Warp& warp) override;
};

struct BulkRun {
  Region* from = nullptr;  // nullptr: the fill pattern
  uint64_t from_offset = 0;
  Region* to = nullptr;  // nullptr: each of the destinations
  uint64_t to_offset = 0;
  uint32_t bytes = 0;
};

struct BulkSignal {
  Mbarrier* barrier;
  Promise promise;
};

class BulkCopy : public AsyncOp {
 public:
  void complete(Machine& machine) override;
  std::string describe() const override;

  std::vector<BulkRun> runs;
  std::vector<Region*> destinations;  // shared memory of the receiving CTAs
  std::array<uint8_t, 16> fill = {};
  check::Layout layout = check::Layout::Linear;  // in shared memory
  ReduceOp reduce = ReduceOp::None;
  ReduceType type = ReduceType::U32;
  std::vector<BulkSignal> signals;
  uint64_t signal_bytes = 0;
  std::shared_ptr<BulkGroup> group;
  BulkThread* thread = nullptr;

 private:
  void move(Machine& machine, const BulkRun& run, Region& to) const;
};

// Receivers of a copy to shared memory: CTAs and their mbarriers. `mask`: CTAs by rank (multicast), or 0.
struct Receivers {
  std::vector<Region*> regions;
  std::vector<Mbarrier*> barriers;
  uint32_t offset = 0;
};
bool find_receivers(Warp& warp, uint64_t destination, uint64_t barrier, uint32_t mask, bool pair, LaneMask lane,
                    Receivers& out);

// How the shared side of a copy is arranged.
check::Layout layout_of(uint8_t tensor_map_swizzle);

// Puts the signals into the copy and tells the checker of its accesses, then issues it. `shared_bytes`: the contiguous
// range that a load fills at each receiver.
void issue_load(Warp& warp, int lane, std::unique_ptr<BulkCopy> copy, const Receivers& receivers,
                uint64_t shared_bytes);
void issue_store(Warp& warp, int lane, std::unique_ptr<BulkCopy> copy);

// The active lanes less those whose operands are all equal to those of the first one. The hardware issues a copy for a
// warp; that is the same as one a lane where repeating it changes nothing.
LaneMask without_repetitions(const Warp& warp, const Instr& instr, LaneMask active);

// Common parts of the spellings.
ReduceOp take_reduce_op(Modifiers& modifiers);
bool take_reduce_type(Modifiers& modifiers, ReduceType& type);
bool check_aligned(Warp& warp, uint64_t address, uint32_t alignment, const char* what, LaneMask lane);

}  // namespace ptxrun::ops

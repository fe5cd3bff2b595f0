// What a warp's wgmma instructions have in flight: groups, registers, fences.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "check/checks.h"
#include "exec/machine.h"

namespace ptxrun::ops {

// Register rows that the kernel's wgmma instructions use; wgmma.fence remembers their contents, so that a row which has
// changed since is found when it is used. A rewrite of a defined register with the same value goes unnoticed, and so
// does a read.
struct WgmmaRows : Extension<Grid> {
  explicit WgmmaRows(Grid& grid);
  std::vector<Operand> operands;  // one for each row
  std::vector<int32_t> index_of;  // by row; -1: not used by wgmma
};

// How many products each warp of a CTA has issued: the four of a warpgroup must issue all of them together.
struct WgmmaCounts : Extension<Cta> {
  explicit WgmmaCounts(Cta& cta) : issued(cta.warps.size()), last(cta.warps.size()) {}
  void on_end(Cta& cta) override;
  std::vector<uint64_t> issued;  // by warp
  std::vector<Site> last;
};
constexpr uint32_t kWarpsInGroup = 4;

class WgmmaState : public Extension<Warp>, public WaitObject {
 public:
  explicit WgmmaState(Warp& warp);
  std::string describe() const override;

  OrderKey order() const { return order_; }

  void fence();
  // An operation is issued into the open group: `results` are its accumulators, `sources` registers with A. Reports
  // registers that are not ordered with it, holds them, and returns the group.
  uint64_t issue(std::span<const Operand> results, std::span<const Operand> sources, bool reads_results, int columns,
                 LaneMask active);
  // It has written its results.
  void completed(uint64_t group, std::span<const Operand> results);

  void commit(check::Epoch epoch);
  // The youngest group of which all but `allowed` later ones must have ended; 0: none.
  uint64_t group_to_wait_for(uint64_t allowed) const { return committed_ > allowed ? committed_ - allowed : 0; }
  bool has_ended(uint64_t group) const;
  void released(uint64_t group);

 private:
  struct Group {
    uint64_t pending = 0;
    check::Epoch epoch;
  };
  struct Use {
    uint64_t group = 0;  // 0: not in flight
    bool accumulator = false;
    int columns = 0;
  };
  Group& group(uint64_t number) { return groups_[number - 1]; }
  Use& use_of(const Operand& op) { return uses_[static_cast<size_t>(rows_.index_of[op.row])]; }
  bool changed_since_fence(const Operand& op) const;
  void remember(const Operand& op, bool written);
  void check_result(const Operand& op, bool reads, int columns, LaneMask active);
  void check_source(const Operand& op, LaneMask active);
  void hold(const Operand& op, const Use& use);

  Warp& warp_;
  WgmmaRows& rows_;
  const OrderKey order_;
  bool fenced_ = false;
  bool reported_ = false;
  struct Contents {
    std::array<uint32_t, kWarpLanes> words;
    bool written = false;  // before that
  };
  std::vector<Contents> contents_;  // at the last fence or completion, by index
  std::vector<Use> uses_;
  std::vector<Group> groups_;  // number 1 first
  uint64_t committed_ = 0, released_ = 0;
};

}  // namespace ptxrun::ops

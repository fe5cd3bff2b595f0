#include "ops/tcgen05.h"

#include <algorithm>
#include <bit>

#include "exec/warp.h"
#include "ops/spaces.h"

namespace ptxrun::ops {

std::string describe(const TmemRange& range) {
  return "lanes " + std::to_string(range.lane) + ".." + std::to_string(range.lane + range.lanes - 1) + ", columns " +
         std::to_string(range.column) + ".." + std::to_string(range.column + range.columns - 1);
}

TmemState::TmemState(Sm& sm) : sm(sm) {
  if (!sm.tmem) sm.tmem = std::make_unique<TensorMemory>();
}

std::string TmemState::describe() const {
  std::string text = "free tensor memory of SM " + std::to_string(sm.index) + ", taken:";
  for (const Block& block : blocks) {
    text += " columns " + std::to_string(block.column) + ".." + std::to_string(block.column + block.columns - 1) +
            " by CTA " + std::to_string(block.owner->linear) + ";";
  }
  return text;
}

std::vector<uint32_t> TmemState::free_places(uint32_t columns) const {
  std::vector<uint32_t> places;
  for (uint32_t first = 0; first + columns <= kTmemColumns; first += columns) {
    const bool taken = std::any_of(blocks.begin(), blocks.end(), [&](const Block& block) {
      return block.column < first + columns && first < block.column + block.columns;
    });
    if (!taken) places.push_back(first);
  }
  return places;
}

bool TmemState::free(const Cta& cta, uint32_t column, uint32_t columns) {
  const auto found = std::find_if(blocks.begin(), blocks.end(), [&](const Block& block) {
    return block.owner == &cta && block.column == column && block.columns == columns;
  });
  if (found == blocks.end()) return false;
  blocks.erase(found);
  wake_all();
  return true;
}

bool TmemState::owns(const Cta& cta, int column, int columns) const {
  if (column < 0 || column + columns > kTmemColumns) return false;
  for (int unit = column / kTmemUnit; unit <= (column + columns - 1) / kTmemUnit; ++unit) {
    const auto at = static_cast<uint32_t>(unit * kTmemUnit);
    const bool owned = std::any_of(blocks.begin(), blocks.end(), [&](const Block& block) {
      return block.owner == &cta && block.column <= at && at < block.column + block.columns;
    });
    if (!owned) return false;
  }
  return true;
}

Tcgen05Cta::Tcgen05Cta(Cta& cta) : pipe(cta.machine->async.new_order()) {}

void Tcgen05Cta::on_end(Cta& cta) {
  TmemState& state = cta.sm->ext<TmemState>();
  for (const TmemState::Block& block : state.blocks) {
    if (block.owner != &cta) continue;
    cta.machine->report(code::kTmemLifecycle,
                        "the CTA ends with columns " + std::to_string(block.column) + ".." +
                            std::to_string(block.column + block.columns - 1) + " of tensor memory allocated",
                        block.site);
  }
  std::erase_if(state.blocks, [&](const TmemState::Block& block) { return block.owner == &cta; });
  state.wake_all();
}

int take_cta_group(Decoder& d) {
  const int group = d.modifiers().take_one({"cta_group::1", "cta_group::2"});
  if (group < 0) d.unknown("cta_group is missing");
  return group + 1;
}

bool check_cta_group(Warp& warp, int cta_group, LaneMask lanes) {
  Tcgen05Cta& cta = warp.cta.ext<Tcgen05Cta>();
  if (cta.cta_group == 0) cta.cta_group = cta_group;
  if (cta.cta_group != cta_group) {
    warp.report(code::kBadOperand,
                "cta_group::" + std::to_string(cta_group) +
                    " in a kernel that also uses cta_group::" + std::to_string(cta.cta_group),
                lanes);
  }
  if (cta_group == 2 && warp.cta.cluster->ctas.size() % 2 != 0) {
    warp.report(code::kCluster, "cta_group::2 needs clusters of an even number of CTAs", lanes);
    return false;
  }
  return true;
}

std::vector<Cta*> group_of(Cta& cta, int cta_group) {
  if (cta_group == 1) return {&cta};
  const uint32_t even = cta.rank & ~1u;
  return {cta.cluster->ctas[even].get(), cta.cluster->ctas[even + 1].get()};
}

bool check_tmem(Warp& warp, Cta& cta, const TmemRange& range, const char* what, LaneMask lanes) {
  std::string problem;
  if (range.lane + range.lanes > kTmemLanes || range.column + range.columns > kTmemColumns) {
    problem = "lies outside of tensor memory";
  } else if (!cta.sm->ext<TmemState>().owns(cta, range.column, range.columns)) {
    problem = "is not tensor memory that CTA " + std::to_string(cta.linear) + " has allocated";
  } else {
    return true;
  }
  warp.report(code::kTmemAccess, std::string(what) + " (" + describe(range) + ") " + problem, lanes);
  return false;
}

void announce_read(check::Issue& issue, Sm& sm, const TmemRange& range) {
  for (int lane = range.lane; lane < range.lane + range.lanes; ++lane) {
    issue.read_tmem(sm, static_cast<uint32_t>(lane), static_cast<uint32_t>(range.column),
                    static_cast<uint32_t>(range.columns));
  }
}

void announce_write(check::Issue& issue, Sm& sm, const TmemRange& range) {
  for (int lane = range.lane; lane < range.lane + range.lanes; ++lane) {
    issue.write_tmem(sm, static_cast<uint32_t>(lane), static_cast<uint32_t>(range.column),
                     static_cast<uint32_t>(range.columns));
  }
}

uint64_t uniform_value(Warp& warp, const Operand& op, LaneMask active, const char* what) {
  const uint64_t value = lane_value(warp, op, std::countr_zero(active));
  bool same = true;
  for_lanes(active, [&](int lane) { same = same && lane_value(warp, op, lane) == value; });
  if (!same) warp.report(code::kBadOperand, std::string(what) + " differs among the lanes of the warp", active);
  return value;
}

}  // namespace ptxrun::ops

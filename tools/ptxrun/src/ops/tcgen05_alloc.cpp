// tcgen05.alloc, dealloc, relinquish_alloc_permit.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <optional>

#include "decode/registry.h"
#include "exec/warp.h"
#include "memory/warp_access.h"
#include "ops/spaces.h"
#include "ops/tcgen05.h"

namespace ptxrun::ops {

namespace {

struct Mods {
  uint8_t cta_group;
  Space space;
};

// Allocation of a pair: both CTAs ask, both get the same columns.
struct PairTable : Extension<Cluster> {
  explicit PairTable(Cluster&) {}
  struct Side {
    std::optional<uint32_t> asked, granted;
    Site site;
  };
  std::map<uint32_t, std::array<Side, 2>> at;  // by half the rank
};

// Kernels must use the address that they are given, so each schedule starts elsewhere.
uint32_t choose(const Machine& machine, const std::vector<uint32_t>& places) {
  switch (machine.options.schedule) {
    case Schedule::Early:
      return places.front();
    case Schedule::Late:
      return places.back();
    case Schedule::Random:
      return places[machine.options.seed % places.size()];
  }
  return places.front();
}

void take(Cta& cta, uint32_t column, uint32_t columns, int cta_group, const Site& site) {
  cta.sm->ext<TmemState>().allocate({column, columns, &cta, cta_group, site});
  check::checks(*cta.machine).tmem_allocated(*cta.sm, column, columns);
}

void store_address(Warp& warp, const Instr& instr, LaneMask active, uint32_t column) {
  const LaneMask first = active & (~active + 1);
  LaneBytes bytes;
  touch_lanes(warp, first, instr.op(0), instr.mods<Mods>().space, sizeof(column), Access::Kind::Write, Order::Weak,
              Scope::None, bytes);
  if (uint8_t* to = bytes.at[std::countr_zero(first)]; to != nullptr) std::memcpy(to, &column, sizeof(column));
}

Step alloc_alone(Warp& warp, const Instr& instr, LaneMask active, uint32_t columns) {
  TmemState& state = warp.cta.sm->ext<TmemState>();
  const std::vector<uint32_t> places = state.free_places(columns);
  if (places.empty()) {
    warp.park(state, active);
    return Step::Next;
  }
  const uint32_t column = choose(warp.machine, places);
  take(warp.cta, column, columns, 1, warp.site());
  store_address(warp, instr, active, column);
  return Step::Next;
}

// Grants what both sides have asked for, if there is room at the same place in both.
void grant(const std::vector<Cta*>& pair, std::array<PairTable::Side, 2>& sides) {
  const uint32_t columns = *sides[0].asked;
  std::vector<uint32_t> places;
  const std::vector<uint32_t> others = pair[1]->sm->ext<TmemState>().free_places(columns);
  for (const uint32_t place : pair[0]->sm->ext<TmemState>().free_places(columns)) {
    if (std::find(others.begin(), others.end(), place) != others.end()) places.push_back(place);
  }
  if (places.empty()) return;
  const uint32_t column = choose(*pair[0]->machine, places);
  for (int i = 0; i < 2; ++i) {
    take(*pair[i], column, columns, 2, sides[i].site);
    sides[i].granted = column;
    sides[i].asked.reset();
    pair[i]->sm->ext<TmemState>().wake_all();
  }
}

Step alloc_pair(Warp& warp, const Instr& instr, LaneMask active, uint32_t columns) {
  const std::vector<Cta*> pair = group_of(warp.cta, 2);
  auto& sides = warp.cta.cluster->ext<PairTable>().at[warp.cta.rank / 2];
  PairTable::Side& own = sides[warp.cta.rank % 2];
  const PairTable::Side& other = sides[1 - warp.cta.rank % 2];
  if (!own.asked && !own.granted) {
    own.asked = columns;
    own.site = warp.site();
  }
  if (own.asked && other.asked) {
    if (*own.asked != *other.asked) {
      warp.report(code::kTmemLifecycle,
                  "the CTAs of the pair ask for " + std::to_string(*own.asked) + " and " +
                      std::to_string(*other.asked) + " columns",
                  active);
      return Step::Next;
    }
    grant(pair, sides);
  }
  if (!own.granted) {
    warp.park(warp.cta.sm->ext<TmemState>(), active);
    return Step::Next;
  }
  store_address(warp, instr, active, *own.granted);
  own.granted.reset();
  return Step::Next;
}

Step run_alloc(Warp& warp, const Instr& instr, LaneMask active) {
  const int cta_group = instr.mods<Mods>().cta_group;
  if (!check_cta_group(warp, cta_group, active)) return Step::Next;
  const auto columns = static_cast<uint32_t>(uniform_value(warp, instr.op(1), active, "the number of columns"));
  if (!std::has_single_bit(columns) || columns < kTmemUnit || columns > kTmemColumns) {
    warp.report(code::kBadOperand, std::to_string(columns) + " columns: must be a power of two from 32 to 512", active);
    return Step::Next;
  }
  if (warp.cta.ext<Tcgen05Cta>().relinquished) {
    warp.report(code::kTmemLifecycle, "allocation after tcgen05.relinquish_alloc_permit", active);
  }
  return cta_group == 1 ? alloc_alone(warp, instr, active, columns) : alloc_pair(warp, instr, active, columns);
}

// Whoever has not been waited for still uses the columns: freeing them counts as a write.
void check_idle(Warp& warp, const TmemRange& range) {
  check::Checks& checks = check::checks(warp.machine);
  check::Pipe& pipe = checks.pipe(warp, check::PipeKind::TmemStore);
  check::Issue issue = checks.issue(warp, pipe, Proxy::Async);
  announce_write(issue, *warp.cta.sm, range);
  checks.waited(warp, pipe.close());
}

Step run_dealloc(Warp& warp, const Instr& instr, LaneMask active) {
  if (!check_cta_group(warp, instr.mods<Mods>().cta_group, active)) return Step::Next;
  const auto address = static_cast<uint32_t>(uniform_value(warp, instr.op(0), active, "the address"));
  const auto columns = static_cast<uint32_t>(uniform_value(warp, instr.op(1), active, "the number of columns"));
  const uint32_t column = tmem_column(address);
  TmemState& state = warp.cta.sm->ext<TmemState>();
  if (tmem_lane(address) != 0 || !state.free(warp.cta, column, columns)) {
    warp.report(code::kTmemLifecycle,
                "columns " + std::to_string(column) + ".." + std::to_string(column + columns - 1) +
                    " are not an allocation of this CTA",
                active);
    return Step::Next;
  }
  check_idle(warp, {0, kTmemLanes, static_cast<int>(column), static_cast<int>(columns)});
  return Step::Next;
}

Step run_relinquish(Warp& warp, const Instr& instr, LaneMask active) {
  check_cta_group(warp, instr.mods<Mods>().cta_group, active);
  warp.cta.ext<Tcgen05Cta>().relinquished = true;
  return Step::Next;
}

void decode_management(Decoder& d, Instr& out) {
  out.op_class = OpClass::Tmem;
  out.convergence = Convergence::Aligned;
  Modifiers& modifiers = d.modifiers();
  const int kind = modifiers.take_one({"alloc", "dealloc", "relinquish_alloc_permit"});
  Mods mods{};
  mods.cta_group = static_cast<uint8_t>(take_cta_group(d));
  if (!modifiers.take("sync") || !modifiers.take("aligned")) d.unknown();
  if (kind == 0) mods.space = take_shared_space(modifiers);
  if (kind != 2 && !modifiers.take("b32")) d.unknown();
  if (kind == 0) d.address(d.operand(0));
  if (kind == 1) d.read(d.operand(0), 32);
  if (kind != 2) d.read(d.operand(1), 32);
  d.finish(kind == 2 ? 0 : 2);
  out.set_mods(mods);
  constexpr Handler kHandlers[] = {run_alloc, run_dealloc, run_relinquish};
  out.handler = kHandlers[kind];
}

const Family family({"tcgen05.alloc", "tcgen05.dealloc", "tcgen05.relinquish_alloc_permit"}, decode_management);

}  // namespace

}  // namespace ptxrun::ops

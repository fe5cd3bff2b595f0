#pragma once

#include <memory>

#include "check/shadow.h"
#include "check/words.h"
#include "memory/memory.h"

namespace ptxrun::check {

struct RegionShadow : RegionState {
  Shadow shadow;
  Words words;
  CellSpace space;
  bool shared_between_agents;  // false: memory of one thread
  RegionShadow(std::shared_ptr<CellPool> pool, const Region& region)
      : shadow(std::move(pool), region.bytes, region.initialised),
        space(region.kind == Region::Kind::Shared ? CellSpace::Shared : CellSpace::Global),
        shared_between_agents(region.kind == Region::Kind::Shared || region.kind == Region::Kind::Global) {}
};

struct WarpState : AgentState {
  WarpClock clock;
  Domains domains;
  FenceState fences;
  WarpState(AgentId id, const View& seen, const Domains& domains) : clock(id, seen), domains(domains) {}
};

}  // namespace ptxrun::check

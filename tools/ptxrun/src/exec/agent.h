// Whoever accesses memory on its own account: a warp or the host.
#pragma once

#include <cstdint>
#include <memory>

#include "decode/instruction.h"

namespace ptxrun {

struct Kernel;

// Where something happened, for findings. Indices are those of the launch, the CTA in the grid, the warp in the CTA.
struct Site {
  const Kernel* kernel = nullptr;
  const Instr* instr = nullptr;
  uint32_t launch = 0;
  uint32_t cta = 0;
  uint32_t warp = 0;
  LaneMask lanes = 0;
};

enum class AgentKind : uint8_t { Host, Warp };

// What the checker knows of an agent (its clocks); src/check derives from it.
struct AgentState {
  virtual ~AgentState() = default;
};

struct Agent {
  AgentKind kind = AgentKind::Host;
  uint32_t id = 0;       // the checker's
  uint64_t effects = 0;  // writes and other visible changes so far: a polling loop makes none
  std::unique_ptr<AgentState> state;
};

}  // namespace ptxrun

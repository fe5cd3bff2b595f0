// Modifiers that loads, stores and atomics share.
#pragma once

#include "decode/decoder.h"
#include "memory/memory.h"

namespace ptxrun {

struct MemoryModifiers {
  Space space = Space::Generic;
  Order order = Order::Weak;
  Scope scope = Scope::None;
};

// Takes order, scope, state space and the hints that change nothing: cache operators, eviction priorities, prefetch
// sizes, cache policies (an operand: true if there is one).
MemoryModifiers take_memory_modifiers(Decoder& d, bool* has_policy);

}  // namespace ptxrun

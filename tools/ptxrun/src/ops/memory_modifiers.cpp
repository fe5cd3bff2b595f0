#include "ops/memory_modifiers.h"

namespace ptxrun {
namespace {

Space take_space(Decoder& d) {
  constexpr Space kSpaces[] = {Space::Global, Space::Shared, Space::Shared, Space::SharedCluster, Space::Local,
                               Space::Param,  Space::Param,  Space::Local,  Space::Const};
  const int space = d.modifiers().take_one(
      {"global", "shared", "shared::cta", "shared::cluster", "local", "param", "param::entry", "param::func", "const"});
  return space < 0 ? Space::Generic : kSpaces[space];
}

void drop_hints(Decoder& d, bool* has_policy) {
  *has_policy = d.modifiers().take("L2::cache_hint");
  d.modifiers().take_one({"ca", "cg", "cs", "lu", "cv", "wb", "wt"});
  d.modifiers().take_one(
      {"L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate"});
  d.modifiers().take_one({"L2::evict_normal", "L2::evict_first", "L2::evict_last"});
  d.modifiers().take_one({"L2::64B", "L2::128B", "L2::256B"});
}

}  // namespace

MemoryModifiers take_memory_modifiers(Decoder& d, bool* has_policy) {
  MemoryModifiers result;
  constexpr Order kOrders[] = {Order::Weak,    Order::Volatile, Order::Relaxed,
                               Order::Acquire, Order::Release,  Order::AcqRel};
  const bool mmio = d.modifiers().take("mmio");
  const int order = d.modifiers().take_one({"weak", "volatile", "relaxed", "acquire", "release", "acq_rel"});
  if (order >= 0) result.order = kOrders[order];
  constexpr Scope kScopes[] = {Scope::Cta, Scope::Cluster, Scope::Gpu, Scope::Sys};
  const int scope = d.modifiers().take_one({"cta", "cluster", "gpu", "sys"});
  if (scope >= 0) result.scope = kScopes[scope];
  if (mmio || result.order == Order::Volatile) result.scope = Scope::Sys;
  result.space = take_space(d);
  drop_hints(d, has_policy);
  return result;
}

}  // namespace ptxrun

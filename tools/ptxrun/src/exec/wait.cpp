#include "exec/wait.h"

#include <algorithm>
#include <utility>

#include "exec/warp.h"

namespace ptxrun {

void WaitObject::wake_all() {
  for (const Waiter& waiter : std::exchange(waiters_, {})) waiter.warp->wake(*this, 0, true);
}

void WaitObject::wake_tag(uint64_t tag) {
  const auto first = std::partition(waiters_.begin(), waiters_.end(), [&](const Waiter& w) { return w.tag != tag; });
  const std::vector<Waiter> woken(first, waiters_.end());
  waiters_.erase(first, waiters_.end());
  for (const Waiter& waiter : woken) waiter.warp->wake(*this, tag, false);
}

}  // namespace ptxrun

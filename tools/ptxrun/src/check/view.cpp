#include "check/view.h"

namespace ptxrun::check {

void WarpClock::release(View& into) {
  into.generic.join(seen_.generic);
  into.generic.raise(self_);
  into.async_shared.join(seen_.async_shared);
  into.async_global.join(seen_.async_global);
  into.tensormap.join(seen_.tensormap);
  into.tcgen05.join(published_);
  into.tcgen05.join(arrived_);
  into.executed.join(seen_.executed);
  step();
}

void WarpClock::executed_before(View& into) const {
  into.executed.join(seen_.generic);
  into.executed.join(seen_.executed);
  into.executed.raise(self_);
}

void WarpClock::acquire(const View& from) {
  seen_.generic.join(from.generic);
  seen_.async_shared.join(from.async_shared);
  seen_.async_global.join(from.async_global);
  seen_.tensormap.join(from.tensormap);
  arrived_.join(from.tcgen05);
  seen_.executed.join(from.executed);
}

void WarpClock::fence_async(FenceSpace space) {
  const auto publish = [this](Clock& clock) {
    clock.join(seen_.generic);
    clock.raise(self_);
  };
  if (space != FenceSpace::Global) publish(seen_.async_shared);
  if (space != FenceSpace::Shared) publish(seen_.async_global);
  step();
}

void WarpClock::fence_tensormap() {
  seen_.tensormap.join(seen_.generic);
  seen_.tensormap.raise(self_);
  step();
}

void WarpClock::waited(Epoch epoch) {
  seen_.generic.raise(epoch);
  seen_.tcgen05.raise(epoch);
}

}  // namespace ptxrun::check

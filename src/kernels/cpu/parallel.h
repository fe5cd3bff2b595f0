// Work units dealt to the workers of the caller's pool.
#pragma once

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <cstdint>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/config.h"

namespace cake_moe::cpu {

// Round to nearest, no flush to zero, whatever the thread had set; restored at the end.
class DefaultFpEnvironment {
 public:
  DefaultFpEnvironment() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFpEnvironment() { std::fesetenv(&saved_); }
  DefaultFpEnvironment(const DefaultFpEnvironment&) = delete;
  DefaultFpEnvironment& operator=(const DefaultFpEnvironment&) = delete;

 private:
  std::fenv_t saved_;
};

// Calls body(unit) once for each unit, in any order, on any worker. A worker draws up to max_draw neighbouring units at
// a time, fewer where the draws would not balance, and never waits for another worker, since the pool may run them one
// after the other.
template <class Body>
void for_each_unit(const ThreadPool& pool, int64_t units, int64_t max_draw, const Body& body) {
  const int64_t draw = std::clamp<int64_t>(units / (int64_t{pool.num_workers} * kDrawsPerWorker), 1, max_draw);
  std::atomic<int64_t> next{0};
  pool.run([&](int) {
    const DefaultFpEnvironment environment;
    for (int64_t begin; (begin = next.fetch_add(draw, std::memory_order_relaxed)) < units;) {
      const int64_t end = std::min(begin + draw, units);
      for (int64_t unit = begin; unit < end; ++unit) body(unit);
    }
  });
}

}  // namespace cake_moe::cpu

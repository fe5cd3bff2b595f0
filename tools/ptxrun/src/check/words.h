// Synchronisation through words of memory: release and acquire operations, fences, scopes.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "check/view.h"
#include "memory/memory.h"

namespace ptxrun::check {

// The set of threads among which an operation of a scope synchronises: a CTA, a cluster or all.
using Domain = uint64_t;
constexpr Domain kEverybody = 0;
constexpr Domain cta_domain(uint32_t serial) { return uint64_t{1} << 32 | serial; }
constexpr Domain cluster_domain(uint32_t first_serial) { return uint64_t{2} << 32 | first_serial; }

// Domains of a thread, narrow to wide.
struct Domains {
  std::array<Domain, 3> of;  // CTA, cluster, everybody
};
// Number of domains within a scope.
int domains_within(Scope scope);

// What fences of a warp have made of its plain reads and writes of flags, by domain.
struct FenceState {
  std::array<View, 3> released;  // handed on by a later relaxed store or atomic
  std::array<View, 3> read;      // found in words by relaxed loads; known after an acquiring fence
};

class Words {
 public:
  bool empty() const { return words_.empty(); }
  // A store or atomic on the word at `offset` hands on `view` to readers in the domain.
  void publish(uint64_t offset, Domain domain, const View& view);
  // A store: what earlier ones have handed on is no longer found in the word.
  void forget(uint64_t offset) { words_.erase(offset); }
  // Calls found(domain index, view) for what was handed on in one of the reader's domains.
  template <class Found>
  void collect(uint64_t offset, const Domains& domains, int within, Found found) const {
    const auto word = words_.find(offset);
    if (word == words_.end()) return;
    for (const auto& [domain, view] : word->second) {
      for (int i = 0; i < within; ++i) {
        if (domains.of[i] == domain) found(i, view);
      }
    }
  }

 private:
  std::unordered_map<uint64_t, std::vector<std::pair<Domain, View>>> words_;
};

}  // namespace ptxrun::check

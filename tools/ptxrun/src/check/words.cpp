#include "check/words.h"

namespace ptxrun::check {

int domains_within(Scope scope) {
  switch (scope) {
    case Scope::Cta:
      return 1;
    case Scope::Cluster:
      return 2;
    default:
      return 3;
  }
}

void Words::publish(uint64_t offset, Domain domain, const View& view) {
  auto& entries = words_[offset];
  for (auto& [known, handed_on] : entries) {
    if (known == domain) {
      handed_on.join(view);
      return;
    }
  }
  entries.emplace_back(domain, view);
}

}  // namespace ptxrun::check

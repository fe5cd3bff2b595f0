#include "bindings/prepared.h"

#include <bitset>
#include <functional>
#include <mutex>
#include <unordered_map>

#include "plan/problem.h"

namespace cake_moe {
namespace {

using Counts = std::bitset<kMaxTokens + 1>;

constexpr int kMaxRangesShown = 8;

struct KeyHash {
  size_t operator()(const WorkspaceKey& key) const {
    return std::hash<const void*>()(key.data) ^ static_cast<size_t>(key.bytes) * 31 ^
           static_cast<size_t>(key.place.cuda_index);
  }
};

// Never destroyed: finalizers of Python storages may run after static destructors.
struct Registry {
  std::mutex mutex;
  std::unordered_map<WorkspaceKey, Counts, KeyHash> counts;
};
Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

// Whether preparing `fresh` overwrites the constants of `old`: another start in the same memory.
bool constants_overlap(const WorkspaceKey& old, const WorkspaceKey& fresh) {
  const auto begin = [](const WorkspaceKey& key) { return static_cast<const uint8_t*>(key.data); };
  const bool overlap = begin(old) < begin(fresh) + fresh.bytes && begin(fresh) < begin(old) + old.bytes;
  return old.place == fresh.place && old.data != fresh.data && overlap;
}

std::string ranges_text(const Counts& counts) {
  std::string text;
  int shown = 0;
  for (int first = 1; first <= kMaxTokens; ++first) {
    if (!counts[first]) continue;
    int last = first;
    while (last < kMaxTokens && counts[last + 1]) ++last;
    if (shown++ == kMaxRangesShown) return text + ", ...";
    if (!text.empty()) text += ", ";
    text += std::to_string(first);
    if (last > first) text += ".." + std::to_string(last);
    first = last;
  }
  return text;
}

}  // namespace

namespace prepared {

void add(const WorkspaceKey& key, int num_tokens, bool up_to) {
  Registry& state = registry();
  const std::lock_guard lock(state.mutex);
  std::erase_if(state.counts, [&](const auto& entry) { return constants_overlap(entry.first, key); });
  Counts& counts = state.counts[key];
  for (int count = up_to ? 1 : num_tokens; count <= num_tokens; ++count) counts.set(count);
}

bool contains(const WorkspaceKey& key, int num_tokens) {
  Registry& state = registry();
  const std::lock_guard lock(state.mutex);
  const auto found = state.counts.find(key);
  return found != state.counts.end() && found->second[num_tokens];
}

void forget(const WorkspaceKey& key) {
  Registry& state = registry();
  const std::lock_guard lock(state.mutex);
  state.counts.erase(key);
}

std::string describe(const WorkspaceKey& key) {
  Registry& state = registry();
  const std::lock_guard lock(state.mutex);
  const auto found = state.counts.find(key);
  if (found == state.counts.end()) return "an unprepared buffer";
  return "one prepared for " + ranges_text(found->second);
}

}  // namespace prepared
}  // namespace cake_moe

// Which workspaces are prepared for which token counts. Process-wide, thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "bindings/argument.h"

namespace cake_moe {

// A buffer is known by where it starts and how long it is: an alias of the same bytes is the same buffer, a view with
// another start or size is another one.
struct WorkspaceKey {
  Place place;
  const void* data;
  int64_t bytes;

  bool operator==(const WorkspaceKey&) const = default;
};

namespace prepared {

void add(const WorkspaceKey& key, int num_tokens, bool up_to);
bool contains(const WorkspaceKey& key, int num_tokens);
void forget(const WorkspaceKey& key);
// "an unprepared buffer" or "one prepared for 1..16, 64", for error messages.
std::string describe(const WorkspaceKey& key);

}  // namespace prepared
}  // namespace cake_moe

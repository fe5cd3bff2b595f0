// The state rules of a workspace.
#pragma once

#include "bindings/argument.h"
#include "bindings/prepared.h"

namespace cake_moe {

// Refuses a workspace that was not prepared for num_tokens. Inside cake_moe.testing.auto_prepare() an unknown workspace
// is given its constants for this one call instead.
void require_prepared(const Argument& workspace, const WorkspaceKey& key, int num_tokens);

// Loads the kernels of the workspace's device and writes the default betas, in stream order.
void make_ready(const Argument& workspace);

}  // namespace cake_moe

#pragma once
// Finds and opens the Gloo module. It is looked up in $SGD_MODULE_DIR, else beside the program:
// ../lib of a build tree, ../lib/sgd-launch of an installation. Opened once, kept for ever.

#include "worker/collective/gloo_module/abi.hpp"

namespace sgd::worker {

/// Throws CollectiveSetupError, which says where it looked and what to install.
[[nodiscard]] const SgdGlooApi& load_gloo();

}  // namespace sgd::worker

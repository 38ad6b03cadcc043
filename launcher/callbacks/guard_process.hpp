#pragma once
// What the processes have in common that stand between a launcher and a program of its job: they are away from the
// terminal, outlive the launcher for as long as it takes to end the program, and have the run's folder by a descriptor.

#include <optional>
#include <string>

#include "common/base/time.hpp"

namespace sgd::callbacks {

/// Of a program whose launcher is gone.
inline constexpr Duration kOrphanLimit = std::chrono::seconds(5);
/// How long a tree that is killed may take to die.
inline constexpr Duration kKillLimit = std::chrono::seconds(5);

struct GuardFiles {
  std::string run_dir;  ///< As this process may open it, whatever becomes of its name.
  std::string shown;    ///< As people know it.
};

/// Whether a launcher's socket is at descriptor 3: else a person has typed the verb.
[[nodiscard]] bool is_started_by_launcher();

/// Makes this process a guard for the run in `run_dir`, which then has a folder callbacks/. Nothing: it cannot begin.
[[nodiscard]] std::optional<GuardFiles> enter_guard(const std::string& run_dir);

}  // namespace sgd::callbacks

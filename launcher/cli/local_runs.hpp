#pragma once
// Runs of this user on this machine that no coordinator of the user's knows: each has a launcher that answers on its
// socket, or, as the first of several machines, a coordinator of its own.

#include <string>

#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"
#include "launcher/process/runtime_dir.hpp"

namespace sgd::cli {

/// A run of several machines is listed on the first one as long as this lives.
class ListedRun {
 public:
  /// `run_dir`: its folder, where note_coordinator() has said how to reach it.
  [[nodiscard]] static Result<ListedRun> make(const std::string& run_dir);

 private:
  explicit ListedRun(process::RuntimeDir place) : place_(std::move(place)) {}
  process::RuntimeDir place_;
};

/// The status of each that lives, as a list of rows of `ps`, in the order of their names. One whose launcher does not
/// answer is "not answering", with the reason.
[[nodiscard]] nlohmann::ordered_json local_runs();

}  // namespace sgd::cli

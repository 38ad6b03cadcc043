#include "launcher/cli/run_place.hpp"

#include <unistd.h>

#include <cerrno>
#include <vector>

#include <fmt/format.h>

#include "launcher/cli/state_places.hpp"
#include "launcher/process/runtime_dir.hpp"
#include "launcher/storage/run_lookup.hpp"

namespace sgd::cli {
namespace {

/// Of runs, in their order, where the working directory cannot be written to.
std::vector<std::string> other_places() {
  std::vector<std::string> places;
  if (const std::string state = user_state_dir(); !state.empty()) places.push_back(state + "/runs");
  if (const auto ours = process::runtime_base(""); ours) places.push_back(ours.value() + "/runs");
  return places;
}

}  // namespace

Result<storage::RunPlace> place_of_new_run(const std::string& name, const std::string& given_dir,
                                           Diagnostics& diagnostics) {
  auto place = storage::choose_run_place(name, given_dir);
  if (place) return place;
  const bool may_be_elsewhere = given_dir.empty() && place.error().code != EILSEQ;
  for (const std::string& runs : may_be_elsewhere ? other_places() : std::vector<std::string>()) {
    auto other = storage::choose_run_place(name, "", runs);
    if (!other) continue;
    diagnostics.warn("sgd-launch", 0, 0, fmt::format("{}; files are in {}", place.error().message, runs));
    return other;
  }
  diagnostics.error("--run-dir", 0, 0, place.error().message);
  return place;
}

Result<std::string> find_run(const std::string& name) {
  auto found = storage::find_run(name);
  if (found || ::access(".", W_OK) == 0) return found;
  for (const std::string& runs : other_places())
    if (auto other = storage::find_run(name, runs); other) return other;
  return found;
}

std::string runs_folder() {
  const std::string here = "runs";
  if (::access(".", W_OK) == 0 || storage::has_runs(here)) return here;
  for (const std::string& runs : other_places())
    if (storage::has_runs(runs)) return runs;
  return here;
}

}  // namespace sgd::cli

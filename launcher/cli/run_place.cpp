#include "launcher/cli/run_place.hpp"

#include <vector>

#include <fmt/format.h>

#include "launcher/cli/state_places.hpp"
#include "launcher/process/runtime_dir.hpp"

namespace sgd::cli {

Result<storage::RunPlace> place_of_new_run(const std::string& name, const std::string& given_dir,
                                           Diagnostics& diagnostics) {
  auto place = storage::choose_run_place(name, given_dir);
  if (place) return place;
  std::vector<std::string> others;
  if (given_dir.empty()) {
    if (const std::string state = user_state_dir(); !state.empty()) others.push_back(state);
    if (const auto ours = process::runtime_base(""); ours) others.push_back(ours.value());
  }
  for (const std::string& folder : others) {
    auto other = storage::choose_run_place(name, "", folder + "/runs");
    if (!other) continue;
    diagnostics.warn("--run-dir", 0, 0, fmt::format("{}: files are in {}/runs", place.error().message, folder));
    return other;
  }
  diagnostics.error("--run-dir", 0, 0, place.error().message);
  return place;
}

}  // namespace sgd::cli

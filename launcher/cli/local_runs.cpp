#include "launcher/cli/local_runs.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/json/lenient.hpp"
#include "launcher/cli/control_client.hpp"
#include "launcher/cli/run_naming.hpp"

namespace sgd::cli {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr const char* kRunLink = "run";  ///< In a folder of the runtime base: to the run's own.

/// What its launcher says of the run that has this folder of the runtime base; nothing: none answers there.
std::optional<Json> answer_at(const fs::path& place) {
  std::error_code error;
  const std::string socket = place / "control.sock";
  if (fs::exists(socket, error)) {
    auto answer = ask_socket(socket, socket, {{"request", "status"}});
    return answer ? std::move(answer).value() : std::nullopt;
  }
  const fs::path run_dir = fs::read_symlink(place / kRunLink, error);
  if (error) return std::nullopt;
  const NamedRun run = run_at(run_dir);
  if (!run.cluster) return std::nullopt;
  auto answer = ask(run, {{"request", "status"}});
  return answer ? std::move(answer).value() : std::nullopt;
}

}  // namespace

Result<ListedRun> ListedRun::make(const std::string& run_dir) {
  const auto base = process::runtime_base();
  if (!base) return base.error();
  auto place = process::RuntimeDir::create(base.value());
  if (!place) return place.error();
  std::error_code error;
  fs::create_symlink(run_dir, place.value().file(kRunLink), error);
  if (error) return Error{"cannot list the run in " + base.value() + ": " + error.message()};
  return ListedRun(std::move(place).value());
}

nlohmann::ordered_json local_runs() {
  std::vector<Json> rows;
  const auto base = process::runtime_base();
  std::error_code error;
  for (fs::directory_iterator at(base ? base.value() : "", error), end; !error && at != end; at.increment(error)) {
    const auto answer = answer_at(at->path());
    if (!answer || !read_or(*answer, "ok", false)) continue;
    const Json& status = member(*answer, "status");
    // It is over, and its launcher prints what is left: what is told is its summary.
    if (!status.is_object()) continue;
    rows.push_back(status);
    rows.back().erase("ranks");
    rows.back()["where"] = "this machine";
  }
  std::sort(rows.begin(), rows.end(),
            [](const Json& one, const Json& other) { return read_or(one, "run", "") < read_or(other, "run", ""); });
  return rows;
}

}  // namespace sgd::cli

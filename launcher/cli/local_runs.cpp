#include "launcher/cli/local_runs.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/json/lenient.hpp"
#include "launcher/cli/control_client.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/storage/retention.hpp"
#include "launcher/storage/run_directory.hpp"

namespace sgd::cli {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

/// What its launcher says of the run that has this folder of the runtime base; nothing: there is none. Error: it is
/// there, and does not answer.
Result<std::optional<Json>> answer_at(const fs::path& place) {
  using Answer = std::optional<Json>;
  std::error_code error;
  const std::string socket = place / storage::kControlSocket;
  const fs::path run_dir = fs::read_symlink(place / storage::kRunLink, error);
  if (fs::exists(socket, error)) {
    auto answer = ask_socket(socket, run_dir.empty() ? socket : run_dir.string(), {{"request", "status"}});
    if (!answer && !fs::exists(socket, error)) return Answer{};  // It has ended meanwhile.
    return answer;
  }
  if (run_dir.empty()) return Answer{};
  const NamedRun run = run_at(run_dir);
  if (!run.cluster) return Answer{};
  auto answer = ask(run, {{"request", "status"}});
  if (!answer && !storage::is_run_live(run_dir)) return Answer{};
  return answer;
}

/// What is known of a run whose launcher does not answer, as one that is suspended.
Json silent_row(const fs::path& place, const std::string& why) {
  std::error_code error;
  const fs::path run_dir = fs::read_symlink(place / storage::kRunLink, error);
  return {{"run", (error ? place : run_dir).filename().string()},
          {"state", "not answering"},
          {"reason", why},
          {"run_dir", error ? Json() : Json(run_dir.string())}};
}

}  // namespace

Result<ListedRun> ListedRun::make(const std::string& run_dir) {
  const auto base = process::runtime_base();
  if (!base) return base.error();
  auto place = process::RuntimeDir::create(base.value());
  if (!place) return place.error();
  std::error_code error;
  fs::create_symlink(run_dir, place.value().file(storage::kRunLink), error);
  if (error) return Error{"cannot list the run in " + base.value() + ": " + error.message()};
  return ListedRun(std::move(place).value());
}

nlohmann::ordered_json local_runs() {
  std::vector<Json> rows;
  const auto base = process::runtime_base();
  std::error_code error;
  for (fs::directory_iterator at(base ? base.value() : "", error), end; !error && at != end; at.increment(error)) {
    const auto answer = answer_at(at->path());
    const bool has_answer = answer && answer.value() && read_or(*answer.value(), "ok", false);
    if (answer && !has_answer) continue;
    const Json status = answer ? member(*answer.value(), "status") : silent_row(at->path(), answer.error().message);
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

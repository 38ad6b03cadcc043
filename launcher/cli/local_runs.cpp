#include "launcher/cli/local_runs.hpp"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "common/json/lenient.hpp"
#include "launcher/cli/control_client.hpp"
#include "launcher/process/runtime_dir.hpp"

namespace sgd::cli {

nlohmann::ordered_json local_runs() {
  using Json = nlohmann::ordered_json;
  namespace fs = std::filesystem;
  std::vector<Json> rows;
  const auto base = process::runtime_base();
  std::error_code error;
  for (fs::directory_iterator at(base ? base.value() : "", error), end; !error && at != end; at.increment(error)) {
    const std::string socket = at->path().string() + "/control.sock";
    std::error_code missing;
    if (!fs::exists(socket, missing)) continue;
    const auto answer = ask_socket(socket, socket, {{"request", "status"}});
    if (!answer || !answer.value() || !read_or(*answer.value(), "ok", false)) continue;
    rows.push_back(member(*answer.value(), "status"));
    rows.back().erase("ranks");
    rows.back()["where"] = "this machine";
  }
  std::sort(rows.begin(), rows.end(),
            [](const Json& one, const Json& other) { return read_or(one, "run", "") < read_or(other, "run", ""); });
  return rows;
}

}  // namespace sgd::cli

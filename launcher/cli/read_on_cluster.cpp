// A run on a cluster that is read and not started: its logs, events or metrics as lines.

#include <algorithm>
#include <utility>

#include "common/exit_codes.hpp"
#include "launcher/cli/remote_run.hpp"
#include "launcher/cli/run_naming.hpp"

namespace sgd::cli {

bool RemoteRun::has_logs() const {
  return std::any_of(files_.begin(), files_.end(),
                     [](const auto& file) { return file.first.starts_with("logs/") && file.second.got > 0; });
}

int read_on_cluster(const NamedRun& run, nlohmann::ordered_json follow, bool show_prefix, bool* has_logs) {
  auto tls = tls_of(run);
  if (!tls) return refuse(exit_code::kUsage, tls.error().message);
  RunOptions options;
  options.show_prefix = show_prefix;
  follow["run"] = run.run;
  RemoteRun reader(options, *run.cluster, std::move(tls).value());
  const int exit_code = reader.read(std::move(follow));
  if (has_logs != nullptr) *has_logs = reader.has_logs();
  return exit_code;
}

}  // namespace sgd::cli

// `sgd-launch stop [RUN]`: asks the run's launcher to stop it, and waits until it has.

#include <poll.h>

#include <chrono>

#include <fmt/format.h>

#include "common/base/time.hpp"
#include "common/exit_codes.hpp"
#include "common/json/lenient.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/process/clock.hpp"
#include "launcher/storage/retention.hpp"

namespace sgd::cli {
namespace {

constexpr int kPollMs = 20;

/// Waits until the run's launcher no longer answers, or the coordinator says that the run is over. Its end has no
/// descriptor that we could wait for.
bool wait_gone(const NamedRun& run, TimePoint deadline) {
  while (process::monotonic_now() < deadline) {
    const auto answer = ask(run, {{"request", "status"}});
    if (answer && (!answer.value() || answer.value()->contains("summary"))) return true;
    if (!answer && !run.identity.empty() && !storage::is_run_live(run.directory)) return true;  // It ends with its run.
    (void)::poll(nullptr, 0, kPollMs);
  }
  return false;
}

}  // namespace

int stop_verb(const std::vector<std::string>& arguments) {
  bool at_once = false;
  std::optional<Duration> grace;
  const NamedRun run =
      name_run({"stop",
                "[options] [RUN]",
                "sgd-launch stop",
                {flag({"--now"}, "kill at once, without a checkpoint", at_once),
                 {{"--grace"},
                  "TIME",
                  "time for the checkpoint instead of the job's stop.grace",
                  "",
                  [&](const std::string& text) {
                    grace = parse_duration(text);
                    return grace ? std::string() : fmt::format("expected a time as 30s, got \"{}\"", text);
                  }}},
                {}},
               arguments);
  if (!run.is_named) return run.exit_code;
  nlohmann::ordered_json request = {{"request", "stop"}, {"at_once", at_once}};
  if (grace) request["grace_s"] = to_seconds(*grace);
  const auto answer = ask(run, request);
  if (!answer) return refuse(exit_code::kUnreachable, answer.error().message);
  if (run.cluster && !read_or(*answer.value(), "ok", false))
    return refuse(read_or(*answer.value(), "kind", "") == "forbidden" ? exit_code::kUnreachable : exit_code::kNotFound,
                  read_or(*answer.value(), "error", ""));
  const std::string name = run.cluster ? read_or(*answer.value(), "run", "") : run.directory;
  if (!answer.value() || read_or(*answer.value(), "is_over", false)) {
    return refuse(exit_code::kUnreachable, fmt::format("{} is not running", name));
  }
  constexpr Duration kLongest = std::chrono::hours(1);
  const bool gone = wait_gone(run, process::monotonic_now() + grace.value_or(kLongest) + std::chrono::minutes(1));
  fmt::print("{}: {}\n", name, gone ? "stopped" : "still stopping");
  return gone ? exit_code::kSucceeded : exit_code::kFailed;
}

}  // namespace sgd::cli

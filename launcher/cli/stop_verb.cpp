// `sgd-launch stop [RUN]`: asks the run's launcher to stop it, and waits until it has.

#include <poll.h>

#include <chrono>

#include <fmt/format.h>

#include "common/base/time.hpp"
#include "common/exit_codes.hpp"
#include "launcher/cli/command_line.hpp"
#include "launcher/cli/control_client.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/process/clock.hpp"
#include "launcher/storage/run_lookup.hpp"

namespace sgd::cli {
namespace {

constexpr int kPollMs = 20;

/// Waits until the run's launcher no longer answers. Its end has no descriptor that we could wait for.
bool wait_gone(const std::string& run_dir, TimePoint deadline) {
  while (process::monotonic_now() < deadline) {
    const auto answer = ask_run(run_dir, {{"request", "status"}});
    if (answer && !answer.value()) return true;
    (void)::poll(nullptr, 0, kPollMs);
  }
  return false;
}

}  // namespace

int stop_verb(const std::vector<std::string>& arguments) {
  bool at_once = false;
  bool help = false;
  std::optional<Duration> grace;
  const std::vector<Option> table = {
      {{"--now"}, "", "kill at once, without a checkpoint", "",
       [&](const std::string&) {
         at_once = true;
         return std::string();
       }},
      {{"--grace"}, "TIME", "time for the checkpoint instead of the job's stop.grace", "",
       [&](const std::string& text) {
         grace = parse_duration(text);
         return grace ? std::string() : fmt::format("expected a time as 30s, got \"{}\"", text);
       }},
      {{"--help", "-h"}, "", "this text", "", [&](const std::string&) {
         help = true;
         return std::string();
       }}};
  Diagnostics diagnostics;
  const ParsedArguments parsed = parse_arguments(table, arguments, AfterPositional::kContinue, diagnostics);
  if (parsed.positional.size() > 1) diagnostics.error("stop", 0, 0, "name one run");
  if (help) {
    fmt::print("Example: sgd-launch stop\nUsage: sgd-launch stop [options] [RUN]\n{}", describe(table));
    return exit_code::kSucceeded;
  }
  print(diagnostics);
  if (diagnostics.has_errors()) return exit_code::kUsage;
  const auto run_dir = storage::find_run(parsed.positional.empty() ? "" : parsed.positional.front());
  if (!run_dir) {
    fmt::print(stderr, "sgd-launch: {}\n", run_dir.error().message);
    return exit_code::kNotFound;
  }
  nlohmann::json request = {{"request", "stop"}, {"at_once", at_once}};
  if (grace) request["grace_s"] = to_seconds(*grace);
  const auto answer = ask_run(run_dir.value(), request);
  if (!answer) {
    fmt::print(stderr, "sgd-launch: {}\n", answer.error().message);
    return exit_code::kUnreachable;
  }
  if (!answer.value()) {
    fmt::print("{}: not running\n", run_dir.value());
    return exit_code::kSucceeded;
  }
  constexpr Duration kLongest = std::chrono::hours(1);
  const bool gone = wait_gone(run_dir.value(), process::monotonic_now() + grace.value_or(kLongest) + std::chrono::minutes(1));
  fmt::print("{}: {}\n", run_dir.value(), gone ? "stopped" : "still stopping");
  return gone ? exit_code::kSucceeded : exit_code::kFailed;
}

}  // namespace sgd::cli

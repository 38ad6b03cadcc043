// `sgd-launch warm ...`: a Python that has imported what a script needs, kept between runs; and the program behind it.

#include <fcntl.h>
#include <poll.h>

#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/exit_codes.hpp"
#include "launcher/cli/help_text.hpp"
#include "launcher/cli/narrator.hpp"
#include "launcher/cli/program_files.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/run_options.hpp"
#include "launcher/cli/start_checks.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/core/fork_server_request.hpp"
#include "launcher/process/clock.hpp"
#include "launcher/process/runtime_dir.hpp"
#include "launcher/process/setting.hpp"
#include "launcher/process/spawn.hpp"
#include "launcher/warm/warm_client.hpp"
#include "launcher/warm/warm_server.hpp"

namespace sgd::cli {
namespace {

constexpr Duration kServerAnswerLimit = std::chrono::seconds(5);
constexpr Duration kReadyLimit = std::chrono::minutes(10);
constexpr int kLookMs = 50;

struct WarmOptions {
  bool stop = false;
  bool is_json = false;
  bool help = false;
  Duration idle{};
  std::vector<std::string> rest;  ///< As of `run`.
};

std::vector<Option> warm_option_table(WarmOptions& options) {
  return {flag({"--stop"}, "end every Python that is kept ready; runs go on", options.stop),
          {{"--idle"},
           "TIME",
           "end after this time without a run (default: 30m)",
           "",
           [&options](const std::string& text) {
             const auto time = parse_duration(text);
             options.idle = time.value_or(Duration{});
             return time && *time >= std::chrono::seconds(1) ? std::string()
                                                             : fmt::format("expected a time as 30m, got \"{}\"", text);
           }},
          flag({"--json"}, "what is kept ready, as JSON", options.is_json),
          flag({"--help", "-h"}, "this text", options.help)};
}

/// Its own options stand in front of those of the run.
WarmOptions parse(const std::vector<std::string>& arguments, Diagnostics& diagnostics) {
  WarmOptions options;
  std::size_t own = 0;
  while (own < arguments.size()) {
    const std::string& word = arguments[own];
    if (word == "--idle")
      own = std::min(own + 2, arguments.size());
    else if (word == "--stop" || word == "--json" || word == "--help" || word == "-h" || word.starts_with("--idle="))
      ++own;
    else
      break;
  }
  const auto middle = arguments.begin() + static_cast<std::ptrdiff_t>(own);
  (void)parse_arguments(warm_option_table(options), {arguments.begin(), middle}, AfterPositional::kContinue,
                        diagnostics);
  options.rest.assign(middle, arguments.end());
  if (options.stop && !options.rest.empty())
    diagnostics.error("--stop", 0, 0, fmt::format("takes no script: \"{}\" is too many", options.rest.front()));
  return options;
}

int help() {
  WarmOptions unused;
  print_help("warm",
             "Example: sgd-launch warm -n 2 train.py\n"
             "Usage: sgd-launch warm [options] [options of run] (train.py | -m module | job.json | -- python3 ...)\n"
             "       sgd-launch warm [--json | --stop]\n"
             "Starts a Python in the background that imports what the script needs, and keeps\n"
             "it ready: the next run with the same interpreter and environment imports\n"
             "nothing. Without a script it shows what is kept ready.\n" +
                 describe(warm_option_table(unused)));
  return exit_code::kSucceeded;
}

void print_held(const warm::Held& held) {
  if (held.spares.empty()) fmt::print("no Python is kept ready\n");
  for (const warm::Spare& spare : held.spares) {
    const bool is_ready = spare.state == "ready";
    fmt::print("{:<9} {:>9} {:>8} {:>9}  {}{}\n", spare.state,
               is_ready ? fmt::format("{} MiB", spare.bytes >> 20) : "-",
               spare.start_s > 0 ? fmt::format("{:.1f} s", spare.start_s) : "-",
               fmt::format("{} run{}", spare.runs, spare.runs == 1 ? "" : "s"), spare.name,
               spare.reason.empty() ? "" : " (" + spare.reason + ")");
  }
}

void print_json(const warm::Held& held) {
  nlohmann::ordered_json json = {
      {"schema_version", 1}, {"pid", held.pid}, {"idle_s", held.idle_s}, {"held", nlohmann::ordered_json::array()}};
  for (const warm::Spare& spare : held.spares)
    json["held"].push_back({{"name", spare.name},
                            {"state", spare.state},
                            {"reason", spare.reason},
                            {"pid", spare.pid},
                            {"start_s", spare.start_s},
                            {"memory_bytes", spare.bytes},
                            {"runs", spare.runs}});
  fmt::print("{}\n", json.dump());
}

int show(const WarmOptions& options, const std::string& socket) {
  const warm::ToServer question = options.stop ? warm::ToServer(warm::End{}) : warm::ToServer(warm::Look{});
  const auto answer = warm::ask_server(socket, question, kServerAnswerLimit);
  if (!answer) return refuse(exit_code::kUnreachable, answer.error().message);
  const auto* held = answer.value() ? std::get_if<warm::Held>(&*answer.value()) : nullptr;
  const warm::Held found = held != nullptr ? *held : warm::Held{};
  if (options.is_json)
    print_json(found);
  else if (options.stop)
    fmt::print("{}\n", held != nullptr
                           ? fmt::format("{} Python{} ended", found.spares.size(), found.spares.size() == 1 ? "" : "s")
                           : "no Python is kept ready");
  else
    print_held(found);
  return exit_code::kSucceeded;
}

/// What a run of this job would want, and in which setting. Nothing: it is told why there is none.
std::optional<warm::Setting> setting_of(const job::JobSpec& job, const std::string& source, const std::string& base,
                                        Diagnostics& diagnostics) {
  core::AgentFacts facts;
  facts.python_folder = python_folder();
  if (job.command.empty() || !core::preloads(job.resolved, facts.python_folder)) {
    diagnostics.error(
        source, 0, 0,
        job.command.empty()
            ? "only Python scripts have an interpreter to keep: training starts in milliseconds by itself"
            : "only `python3 script.py` and `python3 -m module` have an interpreter to keep (and not with "
              "--preload none, or terminals of their own: \"process\": {\"terminal\": \"all\"})");
    return std::nullopt;
  }
  cluster::DesiredRun run;
  run.job = job.resolved;
  run.ranks.resize(static_cast<std::size_t>(job.num_workers));
  keeper::StartForkServer server = core::fork_server_of(run, facts);
  server.log_path = base + "/warm.log";
  return warm::with_server(process::own_setting(), server);
}

Status start_server(const std::string& base) {
  process::UniqueFd log(
      ::open((base + "/warm.log").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!log) return system_error("cannot write " + base + "/warm.log");
  process::SpawnOptions options;
  options.argv = {own_program(), "warm-server", base};
  options.workdir = "/";
  options.output_fd = log.get();
  options.group = process::ChildGroup::kOwnSession;
  options.dies_with_us = false;  // It is there for the runs to come.
  const auto child = process::spawn(options);
  return child ? Status() : Status(child.error());
}

/// Asks, and starts a server where there is none.
Result<warm::FromServer> ask_or_start(const std::string& base, const warm::ToServer& question) {
  const std::string socket = warm::socket_in(base);
  const TimePoint deadline = process::monotonic_now() + kServerAnswerLimit;
  for (bool is_started = false;;) {
    auto answer = warm::ask_server(socket, question, kServerAnswerLimit);
    if (!answer) return answer.error();
    if (answer.value()) return std::move(*answer.value());
    if (process::monotonic_now() >= deadline) return Error{"the warm server does not start; see " + base + "/warm.log"};
    if (!is_started)
      if (const Status started = start_server(base); !started) return started.error();
    is_started = true;
    (void)::poll(nullptr, 0, kLookMs);
  }
}

/// Until it has imported.
int wait_ready(const std::string& base, const std::string& name, const std::string& log) {
  const TimePoint deadline = process::monotonic_now() + kReadyLimit;
  while (process::monotonic_now() < deadline) {
    const auto answer = warm::ask_server(warm::socket_in(base), warm::Look{}, kServerAnswerLimit);
    if (!answer) return refuse(exit_code::kUnreachable, answer.error().message);
    const auto* held = answer.value() ? std::get_if<warm::Held>(&*answer.value()) : nullptr;
    if (held == nullptr) return refuse(exit_code::kUnreachable, "the warm server has ended; see " + log);
    for (const warm::Spare& spare : held->spares) {
      if (spare.name != name) continue;
      if (spare.state == "failed") return refuse(exit_code::kFailed, fmt::format("{}: {}", name, spare.reason));
      if (spare.state != "ready") continue;
      fmt::print("{}: ready after {:.1f} s, {} MiB; kept until {} have passed without a run (sgd-launch warm --stop)\n",
                 name, spare.start_s, spare.bytes >> 20, format_duration(from_seconds(held->idle_s)));
      return exit_code::kSucceeded;
    }
    (void)::poll(nullptr, 0, kLookMs);
  }
  return refuse(exit_code::kFailed, fmt::format("{}: not ready after {}", name, format_duration(kReadyLimit)));
}

}  // namespace

int warm_verb(const std::vector<std::string>& arguments) {
  Diagnostics diagnostics;
  const WarmOptions own = parse(arguments, diagnostics);
  if (own.help) return help();
  const auto base = process::runtime_base();
  if (!base) return refuse(exit_code::kFailed, base.error().message);
  if (own.rest.empty()) {
    print(diagnostics);
    return diagnostics.has_errors() ? exit_code::kUsage : show(own, warm::socket_in(base.value()));
  }
  const RunOptions options = parse_run_options(own.rest, diagnostics);
  if (options.help) return help();
  if (options.several_nodes)
    diagnostics.error(options.source_of("--nnodes"), 0, 0, "an interpreter is kept on each machine by itself");
  job::LoadResult loaded = load_named_job(options, std::move(diagnostics));
  if (loaded.job) check_start(*loaded.job, options.job_file, loaded.diagnostics);
  std::optional<warm::Setting> setting;
  if (loaded.job && !loaded.diagnostics.has_errors())
    setting = setting_of(*loaded.job, options.job_file.empty() ? "sgd-launch warm" : options.job_file, base.value(),
                         loaded.diagnostics);
  print(loaded.diagnostics);
  if (!setting || loaded.diagnostics.has_errors()) return exit_code::kUsage;
  const std::string name = fmt::format("{}", fmt::join(loaded.job->command, " "));
  const auto answer = ask_or_start(base.value(), warm::Keep{std::move(*setting), name, to_seconds(own.idle)});
  if (!answer) return refuse(exit_code::kFailed, answer.error().message);
  if (const auto* refused = std::get_if<warm::Refused>(&answer.value()))
    return refuse(exit_code::kUnreachable, refused->reason);
  return wait_ready(base.value(), name, base.value() + "/warm.log");
}

int warm_server_main(const std::string& base) {
  warm::WarmServer server(own_program());
  if (const Status listens = server.listen(base); !listens) return refuse(exit_code::kFailed, listens.error().message);
  server.run();
  return exit_code::kSucceeded;
}

}  // namespace sgd::cli

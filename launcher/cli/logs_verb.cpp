// `sgd-launch logs [RUN]`: the log files of a run, with "rank: " in front; -f goes on as long as the run does.

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "common/json/json_file.hpp"
#include "common/json/lenient.hpp"
#include "launcher/cli/control_client.hpp"
#include "launcher/cli/json_lines.hpp"
#include "launcher/cli/log_printer.hpp"
#include "launcher/cli/narrator.hpp"
#include "launcher/cli/plain_verb.hpp"
#include "launcher/cli/remote_run.hpp"
#include "launcher/cli/run_fetch.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/terminal_text.hpp"
#include "launcher/cli/verbs.hpp"

namespace sgd::cli {
namespace {

using Json = nlohmann::ordered_json;

struct LogsOptions {
  LogPrinter::Choice choice;
  bool follow = false;
};

bool answers(const std::string& run_dir) {
  const auto answer = ask_run(run_dir, {{"request", "status"}});
  return answer && answer.value();
}

/// False when stdout takes no more; `error` is why.
bool write_all(const std::string& raw, int& error) {
  static const bool is_terminal = ::isatty(STDOUT_FILENO) == 1;
  const std::string text = is_terminal ? for_terminal(raw, Steering::kColors) : raw;
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::write(STDOUT_FILENO, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) error = errno;
    if (count <= 0) return false;
    done += static_cast<std::size_t>(count);
  }
  return true;
}

/// Whoever has stopped reading has had enough; a full disk has not.
int after_writing(int error) {
  if (error == 0 || error == EPIPE) return exit_code::kSucceeded;
  return refuse(exit_code::kFailed, "cannot write the logs: " + std::generic_category().message(error));
}

/// What people who see no line of a training should know.
std::string silence_of(const Json& job) {
  return member(job, "training").is_object() ? "; the built-in training loop prints nothing" : "";
}

Json job_of(const std::string& run_dir) {
  return json::read_ordered_file(run_dir + "/job.json");
}

std::string of_what(const LogPrinter::Choice& choice) {
  std::string of;
  if (choice.rank) of += fmt::format(" of rank {}", *choice.rank);
  if (choice.generation) of += fmt::format(" of generation {}", *choice.generation);
  return of;
}

/// Who sees no line cannot tell a rank that is silent from one that never was.
std::string why_nothing(const std::string& run_dir, const LogPrinter& printer, const LogPrinter::Choice& choice) {
  if (printer.has_files()) return "its logs" + of_what(choice) + " are empty" + silence_of(job_of(run_dir));
  return "it has no log" + of_what(choice);
}

/// Of a rank that the run does not have: there is nothing to wait for. `workers` 0: how many it has is not known.
std::optional<std::string> no_such_rank(const std::string& run, const LogPrinter::Choice& choice, int workers) {
  if (!choice.rank || workers <= 0 || *choice.rank < workers) return std::nullopt;
  return fmt::format("run {} has no log of rank {}; it has {}", run, *choice.rank,
                     workers == 1 ? "rank 0" : fmt::format("ranks 0 to {}", workers - 1));
}

/// One that has a log, though the run has fewer workers now, is no such rank.
std::optional<std::string> no_such_rank_here(const std::string& run_dir, const LogPrinter::Choice& choice) {
  auto missing =
      no_such_rank(run_dir.substr(run_dir.rfind('/') + 1), choice, read_or(job_of(run_dir), "num_workers", 0));
  if (!missing) return std::nullopt;
  LogPrinter::Choice any;
  any.rank = choice.rank;
  LogPrinter looked(run_dir, any, [](const auto&) { return false; });
  (void)looked.print_new(false);  // Ignoring that nobody reads: which files there are is asked.
  return looked.has_files() ? std::nullopt : std::move(missing);
}

/// What the logs lack: a disk was full, or a worker has removed its log.
void tell_lost(const std::string& run_dir, const LogPrinter::Choice& choice) {
  const auto tell = [&](const Json& event) {
    const std::string text = narrate_lost(event, choice.rank, choice.generation);
    if (!text.empty()) fmt::print(stderr, "sgd-launch: {}\n", for_terminal(text, Steering::kNone));
  };
  (void)each_object(run_dir + "/events.jsonl", tell);  // Ignoring: then nothing is known of it.
}

Json follow_of(const LogsOptions& options) {
  Json follow = {{"logs", true}, {"until_now", !options.follow}};
  if (options.choice.rank) follow["rank"] = *options.choice.rank;
  if (options.choice.generation) follow["generation"] = *options.choice.generation;
  return follow;
}

/// The run as its coordinator shows it, while it lives and when it is over; empty: it has not begun, or is not to be
/// had.
Json shown_on_cluster(const NamedRun& run) {
  const auto answer = ask(run, {{"request", "status"}});
  if (!answer || !answer.value()) return Json::object();
  const Json& living = member(*answer.value(), "status");
  return living.is_object() ? living : member(*answer.value(), "summary");
}

int print_of_cluster(const NamedRun& run, const LogsOptions& options) {
  Json follow = follow_of(options);
  follow["events"] = true;  // They say what the logs lack.
  std::optional<std::string> missing;
  if (options.choice.rank) {
    const Json shown = shown_on_cluster(run);
    missing = no_such_rank(read_or(shown, "run", run.run), options.choice,
                           std::max(read_or(shown, "num_workers", 0), read_or(shown, "world_size", 0)));
    if (missing) follow["until_now"] = true;  // It may have been there before the run had fewer workers.
  }
  bool has_logs = false;
  const int code = read_on_cluster(run, std::move(follow), options.choice.prefix, &has_logs);
  if (code != exit_code::kSucceeded || has_logs) return code;
  if (missing) return refuse(exit_code::kNotFound, *missing);
  fmt::print(stderr, "sgd-launch: there is no line in its logs{}\n", of_what(options.choice));
  return code;
}

}  // namespace

int logs_verb(const std::vector<std::string>& arguments) {
  LogsOptions options;
  std::string to;
  const NamedRun run =
      name_run({"logs",
                "[options] [RUN]",
                "sgd-launch logs --rank 1 -f",
                {whole_number_option({"--rank"}, "only this rank", options.choice.rank),
                 whole_number_option({"--generation"}, "only this start of the workers", options.choice.generation),
                 flag({"--follow", "-f"}, "follow until the run ends", options.follow),
                 text_option({"--to"}, "DIR", "copy the files into this folder, and print nothing", to),
                 flag({"--no-prefix"}, "lines without \"rank: \" in front", options.choice.prefix, false)},
                {}},
               arguments);
  if (!run.is_named) return run.exit_code;
  if (!to.empty()) return save_files(run, follow_of(options), "logs", absolute(to));
  if (run.cluster) return print_of_cluster(run, options);
  if (const auto missing = no_such_rank_here(run.directory, options.choice))
    return refuse(exit_code::kNotFound, *missing);
  int error = 0;
  LogPrinter printer(run.directory, options.choice, [&error](const auto& text) { return write_all(text, error); });
  bool is_told = false;
  for (;;) {
    // Asked before reading: what was written before the end is then surely read.
    const bool is_live = options.follow && answers(run.directory);
    if (!printer.print_new(is_live)) return after_writing(error);
    if (!is_live) break;
    if (!printer.has_found() && !std::exchange(is_told, true))
      fmt::print(stderr,
                 "sgd-launch: its workers have written nothing yet{}: sgd-launch status shows where it stands\n",
                 silence_of(job_of(run.directory)));
    (void)::poll(nullptr, 0, kFollowPollMs);
  }
  printer.print_rest();
  if (!printer.trouble().empty()) return refuse(exit_code::kFailed, printer.trouble());
  if (!printer.has_found() && !is_told)
    fmt::print(stderr, "sgd-launch: {}\n", why_nothing(run.directory, printer, options.choice));
  tell_lost(run.directory, options.choice);
  return after_writing(error);
}

}  // namespace sgd::cli

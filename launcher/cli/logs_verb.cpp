// `sgd-launch logs [RUN]`: the log files of a run, with "rank: " in front; -f goes on as long as the run does.

#include <poll.h>
#include <unistd.h>

#include <cerrno>
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
std::string silence_of(const std::string& run_dir) {
  const nlohmann::ordered_json job = json::read_ordered_file(run_dir + "/job.json");
  return member(job, "training").is_object() ? "; the built-in training loop prints nothing" : "";
}

/// Who sees no line cannot tell a rank that is silent from one that never was.
std::string why_nothing(const std::string& run_dir, const LogPrinter& printer, const LogPrinter::Choice& choice) {
  std::string of;
  if (choice.rank) of += fmt::format(" of rank {}", *choice.rank);
  if (choice.generation) of += fmt::format(" of generation {}", *choice.generation);
  if (printer.has_files()) return "its logs" + of + " are empty" + silence_of(run_dir);
  return "it has no log" + of;
}

/// What the logs lack: a disk was full, or a worker has removed its log.
void tell_lost(const std::string& run_dir, const LogPrinter::Choice& choice) {
  const auto tell = [&](const nlohmann::ordered_json& event) {
    const std::string text = narrate_lost(event, choice.rank, choice.generation);
    if (!text.empty()) fmt::print(stderr, "sgd-launch: {}\n", for_terminal(text, Steering::kNone));
  };
  (void)each_object(run_dir + "/events.jsonl", tell);  // Ignoring: then nothing is known of it.
}

nlohmann::ordered_json follow_of(const LogsOptions& options) {
  nlohmann::ordered_json follow = {{"logs", true}, {"until_now", !options.follow}};
  if (options.choice.rank) follow["rank"] = *options.choice.rank;
  if (options.choice.generation) follow["generation"] = *options.choice.generation;
  return follow;
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
  if (run.cluster) {
    nlohmann::ordered_json follow = follow_of(options);
    follow["events"] = true;  // They say what the logs lack.
    return read_on_cluster(run, std::move(follow), options.choice.prefix);
  }
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
                 silence_of(run.directory));
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

// `sgd-launch logs [RUN]`: the log files of a run, with "rank: " in front; -f goes on as long as the run does.

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "launcher/cli/control_client.hpp"
#include "launcher/cli/log_lines.hpp"
#include "launcher/cli/plain_verb.hpp"
#include "launcher/cli/remote_run.hpp"
#include "launcher/cli/run_fetch.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/terminal_text.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::cli {
namespace {
namespace fs = std::filesystem;

constexpr std::size_t kReadBytes = 256 << 10;

struct LogsOptions {
  std::optional<int> rank;        ///< Absent: all.
  std::optional<int> generation;  ///< Absent: all.
  bool follow = false;
  bool prefix = true;
};

/// One log file, which is not kept open: a run may have more of them than a process may have descriptors.
struct ReadLog {
  LogLines lines;
  off_t bytes = 0;  ///< That were read.
};

/// "rank-0003.log" in "gen-0002": 3 and 2; -1 for another name.
int number_in(const std::string& name, const std::string& before) {
  int number = -1;
  if (name.starts_with(before)) std::from_chars(name.data() + before.size(), name.data() + name.size(), number);
  return number;
}

bool answers(const std::string& run_dir) {
  const auto answer = ask_run(run_dir, {{"request", "status"}});
  return answer && answer.value();
}

class LogPrinter {
 public:
  LogPrinter(std::string run_dir, const LogsOptions& options) : logs_(run_dir + "/logs"), options_(options) {}

  /// Prints what is new. False when stdout has gone away.
  bool print_new() {
    trouble_.clear();
    for (const std::string& path : files()) {
      const int rank = number_in(fs::path(path).filename().string(), "rank-");
      const auto [place, is_new] =
          logs_read_.try_emplace(path, ReadLog{LogLines(options_.prefix ? fmt::format("{}: ", rank) : "")});
      if (!print_file(path, place->second)) return false;
    }
    return true;
  }
  /// Why not everything that is new could be read; empty: it was.
  [[nodiscard]] const std::string& trouble() const { return trouble_; }
  /// Anything was there to print.
  [[nodiscard]] bool has_found() const { return has_found_; }
  /// There is a file of a rank that was asked for, perhaps an empty one.
  [[nodiscard]] bool has_files() const { return !logs_read_.empty(); }
  /// A last line without newline.
  void print_rest() {
    for (auto& [path, log] : logs_read_) (void)write_all(log.lines.rest());
  }

 private:
  std::vector<std::string> files() const {
    std::vector<std::string> found;
    std::error_code error;
    for (const auto& folder : fs::directory_iterator(logs_, error)) {
      const int generation = number_in(folder.path().filename().string(), "gen-");
      if (generation < 0 || generation != options_.generation.value_or(generation)) continue;
      for (const auto& file : fs::directory_iterator(folder.path(), error)) {
        const int rank = number_in(file.path().filename().string(), "rank-");
        if (rank >= 0 && rank == options_.rank.value_or(rank)) found.push_back(file.path().string());
      }
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  bool print_file(const std::string& path, ReadLog& log) {
    const process::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) return note(path);
    std::string buffer(kReadBytes, '\0');
    for (;;) {
      const ssize_t count = ::pread(fd.get(), buffer.data(), buffer.size(), log.bytes);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return note(path);
      if (count == 0) return true;
      has_found_ = true;
      log.bytes += count;
      if (!write_all(log.lines.add({buffer.data(), static_cast<std::size_t>(count)}))) return false;
    }
  }

  /// What has gone has no lines any more.
  bool note(const std::string& path) {
    if (errno != ENOENT && trouble_.empty()) trouble_ = system_error("cannot read " + path).message;
    return true;
  }

  bool write_all(const std::string& raw) const {
    const std::string text = is_terminal_ ? for_terminal(raw, Steering::kColors) : raw;
    std::size_t done = 0;
    while (done < text.size()) {
      const ssize_t count = ::write(STDOUT_FILENO, text.data() + done, text.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      done += static_cast<std::size_t>(count);
    }
    return true;
  }

  std::string logs_;
  LogsOptions options_;
  bool is_terminal_ = ::isatty(STDOUT_FILENO) == 1;
  std::map<std::string, ReadLog> logs_read_;
  std::string trouble_;
  bool has_found_ = false;
};

/// Who sees no line cannot tell a rank that is silent from one that never was.
std::string why_nothing(const LogPrinter& printer, const LogsOptions& options) {
  std::string of;
  if (options.rank) of += fmt::format(" of rank {}", *options.rank);
  if (options.generation) of += fmt::format(" of generation {}", *options.generation);
  if (printer.has_files()) return "its logs" + of + " are empty: the built-in training loop prints nothing";
  return "it has no log" + of;
}

nlohmann::ordered_json follow_of(const LogsOptions& options) {
  nlohmann::ordered_json follow = {{"logs", true}, {"until_now", !options.follow}};
  if (options.rank) follow["rank"] = *options.rank;
  if (options.generation) follow["generation"] = *options.generation;
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
                {whole_number_option({"--rank"}, "only this rank", options.rank),
                 whole_number_option({"--generation"}, "only this start of the workers", options.generation),
                 flag({"--follow", "-f"}, "follow until the run ends", options.follow),
                 text_option({"--to"}, "DIR", "copy the files into this folder, and print nothing", to),
                 flag({"--no-prefix"}, "lines without \"rank: \" in front", options.prefix, false)},
                {}},
               arguments);
  if (!run.is_named) return run.exit_code;
  if (!to.empty()) return save_files(run, follow_of(options), "logs", absolute(to));
  if (run.cluster) return read_on_cluster(run, follow_of(options), options.prefix);
  LogPrinter printer(run.directory, options);
  bool is_told = false;
  for (;;) {
    // Asked before reading: what was written before the end is then surely read.
    const bool is_live = options.follow && answers(run.directory);
    if (!printer.print_new()) return exit_code::kSucceeded;
    if (!is_live) break;
    if (!printer.has_found() && !std::exchange(is_told, true))
      fmt::print(stderr,
                 "sgd-launch: its workers have written nothing yet; the built-in training loop prints nothing: "
                 "sgd-launch status shows where it stands\n");
    (void)::poll(nullptr, 0, kFollowPollMs);
  }
  printer.print_rest();
  if (!printer.trouble().empty()) return refuse(exit_code::kFailed, printer.trouble());
  if (!printer.has_found() && !is_told) fmt::print(stderr, "sgd-launch: {}\n", why_nothing(printer, options));
  return exit_code::kSucceeded;
}

}  // namespace sgd::cli

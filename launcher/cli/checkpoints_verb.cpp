// `sgd-launch checkpoints [RUN]`: what a run, living or ended, has saved, and whether it is whole; `get`: one of them
// here.

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "common/json/lenient.hpp"
#include "launcher/cli/narrator.hpp"
#include "launcher/cli/plain_verb.hpp"
#include "launcher/cli/run_fetch.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/storage/checkpoint_list.hpp"

namespace sgd::cli {
namespace {
using Json = nlohmann::ordered_json;

std::string age_text(const Json& checkpoint) {
  const double seconds = read_or(checkpoint, "age_s", -1.0);
  if (seconds < 0) return "-";
  if (seconds < 100) return fmt::format("{:.0f}s", seconds);
  if (seconds < 100 * 60) return fmt::format("{:.0f}m", seconds / 60);
  if (seconds < 48 * 3600) return fmt::format("{:.0f}h", seconds / 3600);
  return fmt::format("{:.0f}d", seconds / 86400);
}

std::string bytes_text(double bytes) {
  return bytes < 1000 ? fmt::format("{:.0f}", bytes) : short_number(bytes);
}

std::string count_text(const Json& count) {
  return count.is_number() ? dump_text(count) : "-";
}

std::string value_text(const Json& one) {
  const Json& value = member(one, "value");
  return value.is_number() ? fmt::format("{:.6g}", read_or(one, "value", 0.0)) : "-";
}

std::string state_text(const Json& one) {
  if (!read_or(one, "whole", false)) return read_or(one, "damage", "");
  if (read_or(one, "is_ahead", false)) return "ahead of metrics.jsonl";
  return read_or(one, "is_best", false) ? "whole, best" : "whole";
}

void print_table(const Json& list) {
  const Json& checkpoints = member(list, "checkpoints");
  fmt::print("folder     {}\n", read_or(list, "run_dir", ""));
  if (checkpoints.empty()) return fmt::print("no checkpoints\n");
  // A column for the value by which the best are kept, where there is one.
  const std::string metric = read_or(list, "metric", "");
  const auto column = [&](const std::string& text) {
    return metric.empty() ? "" : fmt::format("  {:>{}}", text, std::max<std::size_t>(metric.size(), 10));
  };
  // 80 columns; its generation is in its name.
  constexpr auto kRow = "{:<38} {:>8} {:>5} {:>7} {:>6} {:>4}{}  {}\n";
  fmt::print(kRow, "checkpoint", "step", "epoch", "workers", "bytes", "age", column(metric), "state");
  for (const Json& one : checkpoints)
    fmt::print(kRow, read_or(one, "path", ""), count_text(member(one, "step")), count_text(member(one, "epoch")),
               count_text(member(one, "world_size")), bytes_text(read_or(one, "bytes", 0.0)), age_text(one),
               column(value_text(one)), state_text(one));
}

/// An error's code is the exit code.
Result<Json> list(const NamedRun& run, bool quick) {
  if (!run.cluster) {
    auto all =
        storage::describe_checkpoints(run.directory, quick ? checkpoint::Proof::kSizes : checkpoint::Proof::kChecksums);
    return all ? std::move(all) : Error{all.error().message, exit_code::kFailed};
  }
  const auto answer = ask(run, {{"request", "checkpoints"}});
  if (!answer) return Error{answer.error().message, exit_code::kUnreachable};
  if (!read_or(*answer.value(), "ok", false)) return Error{read_or(*answer.value(), "error", ""), exit_code::kNotFound};
  return member(*answer.value(), "checkpoints");
}

/// What is typed after "get".
struct Get {
  bool is_wanted = false;
  std::optional<int> step;
  std::string folder;
};

/// Takes "get" and DIR out of `words`; RUN stays.
void take_get(std::vector<std::string>& words, Get& get, Diagnostics& diagnostics) {
  if (words.empty() || words.front() != "get") {
    if (get.step) diagnostics.error("--step", 0, 0, "belongs to checkpoints get");
    return;
  }
  get.is_wanted = true;
  words.erase(words.begin());
  if (words.empty() || words.back().empty()) {
    words.clear();  // Nothing else is said of them.
    return diagnostics.error("checkpoints get", 0, 0, "a folder is missing: checkpoints get [RUN] DIR");
  }
  get.folder = absolute(words.back());
  words.pop_back();
}

/// With those that there are, the newest of them.
std::string no_whole_checkpoint(const Json& all, const std::optional<int>& step) {
  constexpr std::ptrdiff_t kShownSteps = 8;
  std::vector<std::int64_t> steps;
  for (const Json& one : member(all, "checkpoints"))
    if (read_or(one, "whole", false)) steps.push_back(read_or(one, "step", std::int64_t{0}));
  std::sort(steps.begin(), steps.end());
  const bool has_more = std::ssize(steps) > kShownSteps;
  if (has_more) steps.erase(steps.begin(), steps.end() - kShownSteps);
  const std::string folder = read_or(all, "run_dir", "");
  return fmt::format("run {} has no whole checkpoint{}{}", folder.substr(folder.rfind('/') + 1),
                     step ? fmt::format(" of step {}", *step) : "",
                     steps.empty() ? ""
                                   : fmt::format("; there {} {}{}", steps.size() == 1 ? "is" : "are",
                                                 has_more ? "..., " : "", fmt::join(steps, ", ")));
}

int get_one(const NamedRun& run, const Json& all, const Get& get) {
  const std::string path = whole_checkpoint(member(all, "checkpoints"), get.step);
  if (path.empty()) return refuse(exit_code::kNotFound, no_whole_checkpoint(all, get.step));
  const auto here = fetch_checkpoint(run, path, get.folder);
  if (!here) return refuse(here.error().code, here.error().message);
  fmt::print("{}\n", here.value());
  return exit_code::kSucceeded;
}

}  // namespace

int checkpoints_verb(const std::vector<std::string>& arguments) {
  bool as_json = false;
  bool quick = false;
  Get get;
  const NamedRun run = name_run(
      {"checkpoints",
       "[--quick] [--json] [RUN]\n       sgd-launch checkpoints get [--step N] [RUN] DIR   copies one of "
       "them into a folder here",
       "sgd-launch checkpoints",
       {flag({"--quick"}, "compare sizes only, not checksums (as on a cluster)", quick),
        whole_number_option({"--step"}, "for get: the checkpoint of this step (default: the newest)", get.step),
        flag({"--json"}, "one JSON object", as_json)},
       [&](std::vector<std::string>& words, Diagnostics& diagnostics) { take_get(words, get, diagnostics); }},
      arguments);
  if (!run.is_named) return run.exit_code;
  const Result<Json> listed = list(run, quick);
  if (!listed) return refuse(listed.error().code, listed.error().message);
  const Json& all = listed.value();
  if (get.is_wanted) return get_one(run, all, get);
  if (as_json) {
    fmt::print("{}\n", dump_text(all, 2));
  } else {
    print_table(all);
  }
  return exit_code::kSucceeded;
}

}  // namespace sgd::cli

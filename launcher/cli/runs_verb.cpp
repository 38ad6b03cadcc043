// `sgd-launch runs list|remove|pin|unpin`: the folders of runs, below runs/ or a coordinator's: what they take, which
// go and which stay.

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "common/base/bytes.hpp"
#include "common/exit_codes.hpp"
#include "common/json/json_file.hpp"
#include "common/json/lenient.hpp"
#include "launcher/cli/cluster_client.hpp"
#include "launcher/cli/help_text.hpp"
#include "launcher/cli/plain_verb.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/run_place.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/storage/retention.hpp"
#include "launcher/storage/run_lookup.hpp"

namespace sgd::cli {
namespace {

using Json = nlohmann::ordered_json;

struct RunsOptions {
  std::string action;
  std::vector<std::string> names;
  storage::Retention keep;
  bool as_json = false;
  std::optional<net::Address> cluster;
};

/// As its summary says; without one its launcher was killed.
std::string state_of(const storage::EndedRun& run) {
  if (run.finished_s == 0) return "live";
  return read_or(json::read_ordered_file(run.directory + "/summary.json"), "state", "lost");
}

Json runs_in(const std::string& folder) {
  Json rows = Json::array();
  for (const storage::EndedRun& run : storage::runs_below(folder))
    rows.push_back({{"run", run.id},
                    {"state", state_of(run)},
                    {"finished", run.finished_s > 0 ? Json(run.finished_s) : Json()},
                    {"bytes", run.bytes},
                    {"pinned", run.is_pinned}});
  return rows;
}

/// Runs of a cluster have owners.
void print_runs(const Json& rows, bool is_cluster) {
  std::size_t width = 26;  // As wide as the longest name: with most of them a row has 80 columns.
  for (const Json& row : rows) width = std::max(width, read_or(row, "run", "").size());
  constexpr auto kRow = "{:<{}} {:<11} {:>10} {}\n";
  const auto end_of = [&](const std::string& pinned, const std::string& owner) {
    return is_cluster ? fmt::format("{:<6}  {}", pinned, owner) : pinned;
  };
  fmt::print(kRow, "run", width, "state", "bytes", end_of("pinned", "owner"));
  for (const Json& row : rows)
    fmt::print(kRow, read_or(row, "run", ""), width, read_or(row, "state", ""),
               member(row, "bytes").is_null() ? "-" : format_bytes(read_or(row, "bytes", std::int64_t{0})),
               end_of(read_or(row, "pinned", false) ? "yes" : "", read_or(row, "owner", "")));
}

int list_runs(const RunsOptions& options) {
  Json rows;
  std::int64_t left_out = 0;
  std::string place;
  if (options.cluster) {
    const auto answer = ask_cluster(*options.cluster, {{"request", "runs"}});
    if (!answer) return refuse(exit_code::kUnreachable, answer.error().message);
    if (!read_or(answer.value(), "ok", false))
      return refuse(exit_code::kUnreachable, read_or(answer.value(), "error", ""));
    rows = member(answer.value(), "runs");
    read_if_fits(answer.value(), "left_out", left_out);
    place = "of " + to_text(*options.cluster);
  } else {
    const std::string folder = runs_folder();
    if (const std::string why = storage::why_unlisted(folder); !why.empty()) return refuse(exit_code::kFailed, why);
    rows = runs_in(folder);
    place = "in " + absolute(folder);
    // Where a run would have had its folder nobody has chosen.
    if (folder.front() == '/') fmt::print(stderr, "sgd-launch: runs {}\n", place);
  }
  if (options.as_json)
    fmt::print("{}\n", dump_text(Json{{"schema_version", 1}, {"left_out", left_out}, {"runs", rows}}, 2));
  else if (rows.empty())
    fmt::print("no runs {}\n", place);
  else
    print_runs(rows, options.cluster.has_value());
  if (left_out > 0) fmt::print(stderr, "sgd-launch: at most {} are listed; {} more are there\n", rows.size(), left_out);
  return exit_code::kSucceeded;
}

int change_run_on_cluster(const RunsOptions& options, const std::string& name) {
  Json request = {{"request", options.action == "remove" ? "remove_run" : "pin_run"}, {"run", name}};
  if (options.action != "remove") request["pinned"] = options.action == "pin";
  const auto answer = ask_cluster(*options.cluster, std::move(request));
  if (!answer) return refuse(exit_code::kUnreachable, answer.error().message);
  if (read_or(answer.value(), "ok", false)) return exit_code::kSucceeded;
  const bool is_unknown = read_or(answer.value(), "kind", "") == "run";
  return refuse(is_unknown ? exit_code::kNotFound : exit_code::kUnreachable, read_or(answer.value(), "error", ""));
}

int change_run_here(const std::string& action, const std::string& name) {
  const auto folder = find_run(name);
  if (!folder) return refuse(exit_code::kNotFound, folder.error().message);
  if (action == "remove" && storage::is_run_live(folder.value()))
    return refuse(exit_code::kFailed, fmt::format("{} is live: sgd-launch stop ends it", name));
  if (action == "remove" && storage::is_pinned(folder.value()))
    return refuse(exit_code::kFailed, fmt::format("{0} is pinned: sgd-launch runs unpin {0} ends that", name));
  const Status done = action == "remove" ? storage::remove_run_folder(folder.value())
                                         : storage::set_pinned(folder.value(), action == "pin");
  return done ? exit_code::kSucceeded : refuse(exit_code::kFailed, done.error().message);
}

/// By what is to stay.
std::vector<std::string> runs_beyond(const storage::Retention& keep) {
  std::vector<storage::EndedRun> ended;
  for (const storage::EndedRun& run : storage::runs_below(runs_folder()))
    if (run.finished_s > 0) ended.push_back(run);
  const double now_s = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::vector<std::string> names;
  for (const storage::EndedRun& run : storage::beyond(std::move(ended), keep, now_s)) names.push_back(run.id);
  return names;
}

int change_runs(const RunsOptions& options) {
  const bool by_rule = options.keep.count || options.keep.age || options.keep.bytes;
  int worst = exit_code::kSucceeded;
  for (const std::string& name : by_rule ? runs_beyond(options.keep) : options.names) {
    const int code = options.cluster ? change_run_on_cluster(options, name) : change_run_here(options.action, name);
    if (code == exit_code::kSucceeded)
      fmt::print("{}: {}\n", name, options.action == "remove" ? "removed" : options.action + "ned");
    worst = std::max(worst, code);
  }
  return worst;
}

void check_runs_options(const RunsOptions& options, Diagnostics& diagnostics) {
  const auto wrong = [&diagnostics](const std::string& what) { diagnostics.error("runs", 0, 0, what); };
  const bool by_rule = options.keep.count || options.keep.age || options.keep.bytes;
  const bool changes = options.action == "remove" || options.action == "pin" || options.action == "unpin";
  if (!changes && options.action != "list")
    return wrong(fmt::format("say one of list, remove, pin, unpin: \"{}\" is none of them", options.action));
  if (!changes && !options.names.empty()) wrong("list takes no RUN");
  if (changes && options.names.empty() && !by_rule) wrong(options.action + " which? name one RUN or more");
  for (const std::string& name : options.names)
    if (name.empty()) wrong("the name of a run is empty");
  if (by_rule && (options.action != "remove" || !options.names.empty()))
    wrong("--keep, --keep-age and --keep-bytes belong to remove without a RUN");
  if (by_rule && options.cluster)
    wrong("what a cluster keeps is its coordinator's: sgd-launch coordinator --keep-runs, --keep-age, --keep-bytes");
}

}  // namespace

int runs_verb(const std::vector<std::string>& arguments) {
  RunsOptions options;
  bool help = false;
  std::string address;
  std::optional<int> count;
  const std::vector<Option> table = {
      whole_number_option({"--keep"}, "remove: the newest so many stay", count),
      age_option({"--keep-age"}, "remove: what has ended within this time stays", options.keep.age),
      size_option({"--keep-bytes"}, "remove: the newest within this size stay", options.keep.bytes),
      flag({"--json"}, "one JSON object", options.as_json),
      address_option(address),
      flag({"--help", "-h"}, "this text", help)};
  Diagnostics diagnostics;
  ParsedArguments parsed = parse_arguments(table, arguments, AfterPositional::kContinue, diagnostics, "runs");
  if (help) {
    print_help("runs",
               "Example: sgd-launch runs remove --keep 20\n"
               "Usage: sgd-launch runs list|remove|pin|unpin [options] [RUN...]\n" +
                   describe(table));
    return exit_code::kSucceeded;
  }
  if (parsed.has_dashes) diagnostics.error("runs", 0, 0, "takes no command after --");
  options.action = parsed.positional.empty() ? "list" : parsed.positional.front();
  if (!parsed.positional.empty()) options.names.assign(parsed.positional.begin() + 1, parsed.positional.end());
  if (count) options.keep.count = static_cast<std::size_t>(*count);
  options.cluster = cluster_address(address, diagnostics);
  check_runs_options(options, diagnostics);
  print(diagnostics);
  if (diagnostics.has_errors()) return exit_code::kUsage;
  return options.action == "list" ? list_runs(options) : change_runs(options);
}

}  // namespace sgd::cli

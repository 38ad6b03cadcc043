// `sgd-launch ps`: the runs of a coordinator, and without one that is named this user's on this machine.

#include <algorithm>
#include <filesystem>
#include <string>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "common/json/lenient.hpp"
#include "launcher/cli/cluster_client.hpp"
#include "launcher/cli/help_text.hpp"
#include "launcher/cli/local_runs.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/verbs.hpp"

namespace sgd::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string number_text(const Json& row, const char* key) {
  return member(row, key).is_number_integer() ? dump_text(member(row, key)) : "-";
}

void print_overview(const Json& runs) {
  std::size_t width = 26;  // As wide as the longest name: with most of them a row has 80 columns.
  std::size_t state_width = 11;
  for (const Json& row : runs) {
    width = std::max(width, read_or(row, "run", "").size());
    state_width = std::max(state_width, read_or(row, "state", "").size());
  }
  constexpr auto kRow = "{:<{}} {:<{}} {:>7} {:>5} {:>8} {:>8}  {}\n";
  fmt::print(kRow, "run", width, "state", state_width, "workers", "epoch", "step", "failures", "reason");
  for (const Json& row : runs) {
    const std::string step = number_text(row, row.contains("step") ? "step" : "steps");
    const std::string wanted = number_text(row, "num_workers");
    const std::string workers = number_text(row, "world_size") + (wanted == "-" ? "" : "/" + wanted);
    fmt::print(kRow, read_or(row, "run", ""), width, read_or(row, "state", ""), state_width, workers,
               number_text(row, row.contains("epoch") ? "epoch" : "epochs"), step, number_text(row, "failures"),
               read_or(row, "reason", ""));
  }
}

Result<Json> runs_of(const net::Address& coordinator, bool all) {
  const auto answer = ask_cluster(coordinator, {{"request", "ps"}, {"all", all}});
  if (!answer) return answer.error();
  if (!read_or(answer.value(), "ok", false)) return Error{read_or(answer.value(), "error", "")};
  const Json& runs = member(answer.value(), "runs");
  return runs.is_array() ? runs : Json::array();
}

/// Where nobody has named one, and none has ever been, it is not missed.
bool has_left_socket(const net::Address& coordinator) {
  std::error_code error;
  return coordinator.is_local_socket() && std::filesystem::exists(coordinator.path, error);
}

}  // namespace

int ps_verb(const std::vector<std::string>& arguments) {
  bool all = false;
  bool as_json = false;
  bool help = false;
  std::string address;
  const std::vector<Option> table = {flag({"--all", "-a"}, "also runs of the coordinator that have ended", all),
                                     flag({"--json"}, "one JSON object", as_json), address_option(address),
                                     flag({"--help", "-h"}, "this text", help)};
  Diagnostics diagnostics;
  const ParsedArguments parsed = parse_arguments(table, arguments, AfterPositional::kContinue, diagnostics, "ps");
  if (help) {
    print_help("ps", "Example: sgd-launch ps --all\nUsage: sgd-launch ps [options]\n" + describe(table));
    return exit_code::kSucceeded;
  }
  if (parsed.has_dashes) diagnostics.error("ps", 0, 0, "takes no command after --");
  if (!parsed.positional.empty())
    diagnostics.error("ps", 0, 0, fmt::format("takes options only: \"{}\" is too many", parsed.positional.front()));
  const auto configured = cluster_address(address, diagnostics);
  const bool is_named = configured.has_value() || address == "local";
  const auto coordinator = is_named ? configured : cluster_address("auto", diagnostics);
  print(diagnostics);
  if (diagnostics.has_errors()) return exit_code::kUsage;
  Json runs = configured ? Json::array() : local_runs();
  if (coordinator) {
    const auto listed = runs_of(*coordinator, all);
    // Who names no coordinator asks for what is there: the one of this machine need not be.
    if (!listed && is_named) return refuse(exit_code::kUnreachable, listed.error().message);
    if (!listed && has_left_socket(*coordinator)) fmt::print(stderr, "sgd-launch: {}\n", listed.error().message);
    if (listed) runs.insert(runs.end(), listed.value().begin(), listed.value().end());
  }
  if (all && !configured)
    fmt::print(stderr, "sgd-launch: of this machine only live runs are listed; those in runs/ that have ended: {}\n",
               address == "local" ? "sgd-launch runs --address local" : "sgd-launch runs");
  if (as_json)
    fmt::print("{}\n", dump_text(Json{{"schema_version", 1}, {"runs", runs}}, 2));
  else if (runs.empty() && !configured)
    fmt::print("no run of yours is live on this machine\n");
  else if (runs.empty())
    fmt::print("no run {} of {}{}\n", all ? "is kept" : "is live", to_text(*configured),
               all ? "" : "; with those that have ended: sgd-launch ps --all");
  else
    print_overview(runs);
  return exit_code::kSucceeded;
}

}  // namespace sgd::cli

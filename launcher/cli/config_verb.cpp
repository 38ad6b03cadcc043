// `sgd-launch config show`: what holds here, and where each value comes from; nothing is started.

#include <algorithm>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "common/job/origins.hpp"
#include "common/json/lenient.hpp"
#include "launcher/cli/cluster_client.hpp"
#include "launcher/cli/help_text.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/run_options.hpp"
#include "launcher/cli/start_checks.hpp"
#include "launcher/cli/verbs.hpp"

namespace sgd::cli {
namespace {

std::string config_help() {
  bool unused = false;
  std::string address;
  return "Example: sgd-launch config show --origin job.json\n"
         "Usage: sgd-launch config show [--origin] [--json] [options of run] [job.json | -- command...]\n"
         "Without a job: which coordinator runs go to.\n" +
         describe({flag({"--origin"}, "where each value comes from", unused), flag({"--json"}, "one JSON list", unused),
                   address_option(address), flag({"--help", "-h"}, "this text", unused)});
}

/// The coordinator that runs go to, as a setting like any other.
job::Setting address_setting(const RunOptions& options, const std::optional<net::Address>& coordinator) {
  job::Setting setting{"address", coordinator ? to_text(*coordinator) : "local", "default"};
  if (!options.address.empty())
    setting.origin = options.source_of("--address");
  else if (coordinator)
    setting.origin = user_configuration_file();
  return setting;
}

void print_table(const std::vector<job::Setting>& settings, bool with_origin) {
  std::size_t paths = 0;
  std::size_t values = 0;
  for (const job::Setting& setting : settings) {
    paths = std::max(paths, setting.path.size());
    values = std::max(values, dump_text(setting.value).size());
  }
  for (const job::Setting& setting : settings) {
    if (with_origin)
      fmt::print("{:<{}}  {:<{}}  {}\n", setting.path, paths, dump_text(setting.value), values, setting.origin);
    else
      fmt::print("{:<{}}  {}\n", setting.path, paths, dump_text(setting.value));
  }
}

void print_json(const std::vector<job::Setting>& settings, bool with_origin) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const job::Setting& setting : settings) {
    out.push_back({{"key", setting.path}, {"value", setting.value}});
    if (with_origin) out.back()["origin"] = setting.origin;
  }
  fmt::print("{}\n", dump_text(out, 2));
}

}  // namespace

int config_verb(const std::vector<std::string>& arguments) {
  const bool is_help = !arguments.empty() && (arguments.front() == "--help" || arguments.front() == "-h");
  if (is_help || (arguments.size() > 1 && (arguments[1] == "--help" || arguments[1] == "-h"))) {
    print_help("config", config_help());
    return exit_code::kSucceeded;
  }
  if (arguments.empty() || arguments.front() != "show")
    return refuse(exit_code::kUsage,
                  "config: say what to do: \"config show\"\n" + wrapped(config_help(), help_width()));
  const std::vector<std::string> words(arguments.begin() + 1, arguments.end());
  bool with_origin = false;
  bool as_json = false;
  std::vector<Option> own = {flag({"--origin"}, "", with_origin), flag({"--json"}, "", as_json)};
  const bool has_job = std::any_of(words.begin(), words.end(),
                                   [](const std::string& word) { return word != "--origin" && word != "--json"; });
  Diagnostics diagnostics;
  RunOptions options;
  if (has_job) {
    options = parse_run_options(words, diagnostics, own);
  } else {
    own.push_back(address_option(options.address));
    options.variables = parse_arguments(own, words, AfterPositional::kContinue, diagnostics).variables;
  }
  const auto coordinator = cluster_address(options.address, diagnostics);
  const job::LoadResult loaded = load_named_job(options, std::move(diagnostics));
  print(loaded.diagnostics);
  if (loaded.diagnostics.has_errors()) return exit_code::kUsage;
  std::vector<job::Setting> settings = {address_setting(options, coordinator)};
  if (has_job) {
    for (job::Setting& setting : job::settings(loaded)) settings.push_back(std::move(setting));
  }
  if (as_json)
    print_json(settings, with_origin);
  else
    print_table(settings, with_origin);
  return exit_code::kSucceeded;
}

}  // namespace sgd::cli

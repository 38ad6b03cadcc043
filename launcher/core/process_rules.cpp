#include "launcher/core/process_rules.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "common/base/replace_all.hpp"
#include "common/base/time.hpp"
#include "common/json/lenient.hpp"

namespace sgd::core {
namespace {

bool has_local_rank(const nlohmann::json& process, int local_rank) {
  const nlohmann::json& shown = member(process, "local_ranks_shown");
  return !shown.is_array() || std::find(shown.begin(), shown.end(), local_rank) != shown.end();
}

std::vector<std::string> filters_of(const nlohmann::json& process, const char* key) {
  std::vector<std::string> filters;
  for (const auto& filter : member(process, key))
    if (filter.is_string()) filters.push_back(filter.get<std::string>());
  return filters;
}

}  // namespace

int stream_code(const std::string& codes, int local_rank) {
  if (codes.find(':') == std::string::npos) return codes.empty() ? 0 : codes.front() - '0';
  const std::string all = "," + codes;
  const std::string key = fmt::format(",{}:", local_rank);
  const std::size_t at = all.find(key);
  return at == std::string::npos ? 0 : all[at + key.size()] - '0';
}

std::string attempt_folder(const cluster::DesiredRun& run) {
  const nlohmann::json& process = member(*run.job, "process");
  const std::string base = read_or(process, "log_dir", "");
  if (base.empty() || base == "/dev/null") return {};
  const std::string node = run.node_rank == 0 ? "" : fmt::format("_{}", run.node_rank);
  return fmt::format("{}/{}_{}{}/attempt_{}", base, read_or(process, "rendezvous_id", "none"), run.run, node,
                     run.restart_count);
}

void apply_process_rules(const cluster::DesiredRun& run, int local_rank, keeper::Spawn& spawn) {
  const nlohmann::json& process = member(*run.job, "process");
  const std::string terminal = read_or(process, "terminal", "none");
  spawn.has_input = spawn.rank == 0 && terminal != "none";
  spawn.has_terminal = terminal == "all";
  const std::string attempt = attempt_folder(run);
  const std::string folder = attempt.empty() ? "" : fmt::format("{}/{}", attempt, local_rank);
  if (!folder.empty()) spawn.error_file = folder + "/error.json";
  const int redirected = stream_code(read_or(process, "redirects", ""), local_rank);
  const int teed = stream_code(read_or(process, "tee", ""), local_rank);
  const auto fill = [&](keeper::StreamRules& rules, int bit, const char* name, const char* filters) {
    rules.is_shown = has_local_rank(process, local_rank) && ((redirected & bit) == 0 || (teed & bit) != 0);
    if (folder.empty()) return;
    rules.path = fmt::format("{}/{}.log", folder, name);
    rules.filters = filters_of(process, filters);
    if (!rules.filters.empty()) rules.filtered_path = fmt::format("{}/filtered_{}.log", attempt, name);
  };
  fill(spawn.out, 1, "stdout", "stdout_filters");
  fill(spawn.err, 2, "stderr", "stderr_filters");
}

std::string line_prefix(const cluster::DesiredRun& run, const NodeId& node, Rank rank, int local_rank) {
  const nlohmann::json& process = member(*run.job, "process");
  std::string prefix = read_or(process, "prefix", "[${role_name}${local_rank}]:");
  const std::pair<std::string_view, std::string> values[] = {{"${rank}", fmt::format("{}", rank)},
                                                             {"${local_rank}", fmt::format("{}", local_rank)},
                                                             {"${hostname}", node},
                                                             {"${time}", ""},
                                                             {"${stream}", ""},
                                                             {"${role_name}", read_or(process, "role", "default")}};
  for (const auto& [name, value] : values) replace_all(prefix, name, value);
  return prefix;
}

bool passes_signal(const nlohmann::json& job, int signal) {
  const nlohmann::json& names = member(member(job, "process"), "signals");
  const char* abbreviation = sigabbrev_np(signal);
  if (!names.is_array() || abbreviation == nullptr) return false;
  return std::find(names.begin(), names.end(), fmt::format("SIG{}", abbreviation)) != names.end();
}

bool has_port_of_each(const nlohmann::json& job) {
  return member(member(job, "process"), "backend") == "tensorflow";
}

Duration shutdown_timeout(const nlohmann::json& job) {
  return parse_duration(read_or(member(job, "process"), "shutdown_timeout", "0s")).value_or(Duration::zero());
}

}  // namespace sgd::core

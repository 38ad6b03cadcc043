#include "launcher/core/report_line.hpp"

#include <numeric>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "common/messages/codec.hpp"
#include "common/messages/keeper.hpp"

namespace sgd::core {
namespace {

using Workers = job::ReportRules::Workers;

void autofill(nlohmann::ordered_json& values, bool is_detailed, const LineTimes& times, const WorkerPlace* place) {
  if (!values.contains("_time_this_iter_s")) values["_time_this_iter_s"] = times.this_iter_s;
  values["_training_iteration"] = times.iteration;
  if (!is_detailed) return;
  values["_time_total_s"] = times.total_s;
  if (place == nullptr) return;
  values["_hostname"] = place->hostname;
  values["_node_ip"] = place->address;
  values["_pid"] = place->pid;
}

/// Outside of strings.
std::string with_nulls(std::string_view text) {
  std::string out;
  bool is_string = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    std::size_t length = 1;
    if (!is_string)
      for (const std::string_view word : {"NaN", "Infinity", "-Infinity"})
        if (rest.starts_with(word)) length = word.size();
    if (is_string && rest.front() == '\\') length = 2;
    if (rest.front() == '"') is_string = !is_string;
    out += !is_string && length > 1 ? std::string_view("null") : rest.substr(0, length);
    at += length;
  }
  return out;
}

}  // namespace

PrintedValues printed_values(const std::string& line) {
  if (line.size() > keeper::kLastObjectBytesMax)
    return {nullptr, fmt::format("it is longer than {} KiB", keeper::kLastObjectBytesMax >> 10)};
  auto object = codec::parse_object(with_nulls(line), codec::kDepthMax);
  if (!object) return {nullptr, "it is no JSON object of one line"};
  if (object.value().empty()) return {nullptr, "it has no values"};
  return {std::move(object).value(), {}};
}

std::vector<Rank> listed_ranks(const job::ReportRules& rules, int world_size) {
  std::vector<Rank> ranks;
  if (rules.workers == Workers::kAll || rules.workers == Workers::kList) {
    ranks.resize(static_cast<std::size_t>(world_size));
    std::iota(ranks.begin(), ranks.end(), 0);
  }
  for (const int rank : rules.ranks)
    if (rank < world_size) ranks.push_back(rank);
  return ranks;
}

nlohmann::ordered_json chosen_values(const ReducedReport& report, const job::ReportRules& rules) {
  nlohmann::ordered_json values = report.metrics;
  if (rules.workers == Workers::kRank0) values = in_order(report.per_rank.front());
  if (rules.workers == Workers::kList) values = nlohmann::ordered_json::object();
  if (rules.workers == Workers::kReduced || rules.workers == Workers::kRank0) return values;
  nlohmann::ordered_json workers = nlohmann::ordered_json::array();
  for (const Rank rank : listed_ranks(rules, static_cast<int>(report.per_rank.size())))
    workers.push_back(in_order(report.per_rank[static_cast<std::size_t>(rank)]));
  values["workers"] = std::move(workers);
  return values;
}

void add_autofilled(nlohmann::ordered_json& line, const job::ReportRules& rules, const LineTimes& times,
                    const std::map<Rank, WorkerPlace>& places) {
  const auto place_of = [&places](Rank rank) {
    const auto found = places.find(rank);
    return found == places.end() ? nullptr : &found->second;
  };
  autofill(line, rules.detailed, times, place_of(0));
  if (rules.workers == Workers::kReduced || rules.workers == Workers::kRank0) return;
  nlohmann::ordered_json& workers = line["workers"];
  std::size_t at = 0;
  for (const Rank rank : listed_ranks(rules, static_cast<int>(places.size())))
    if (at < workers.size()) autofill(workers[at++], rules.detailed, times, place_of(rank));
}

}  // namespace sgd::core

#include "launcher/tune/search_protocol.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "common/base/assert.hpp"
#include "common/json/lenient.hpp"
#include "common/json/reader.hpp"
#include "common/json/words.hpp"

namespace sgd::tune {
namespace {

using Json = nlohmann::json;

std::string line(const Json& message) {
  return dump_text(message) + "\n";
}

Json finite_or_null(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}

Error fault(std::string what) {
  return Error{"the search program " + std::move(what)};
}

Result<TrialId> trial_of(const Json& message) {
  const Json& trial = member(message, "trial");
  if (!trial.is_number_integer() || trial < 0 || trial > static_cast<std::int64_t>(kTrialsMax))
    return fault(fmt::format("named no trial: \"trial\" must be a number of one, got {}", json::shown(trial)));
  return trial.get<TrialId>();
}

}  // namespace

std::string hello_line(const ExperimentSpec& spec) {
  return line({{"type", "hello"},
               {"version", kSearchVersion},
               {"metric", spec.metric},
               {"mode", spec.mode == Mode::kMax ? "max" : "min"},
               {"seed", spec.seed},
               {"parameters", spec.parameters.to_json()},
               {"trials", spec.samples}});
}

std::string next_line(const std::vector<TrialId>& trials) {
  return line({{"type", "next"}, {"trials", trials}});
}

std::string given_line(const std::vector<Trial>& given) {
  Json trials = Json::array();
  Json values = Json::object();
  for (const Trial& trial : given) {
    trials.push_back(trial.id);
    values[std::to_string(trial.id)] = trial.values;
  }
  return line({{"type", "next"}, {"trials", std::move(trials)}, {"given", std::move(values)}});
}

std::string line_of(const SearchReport& report) {
  return line({{"type", "report"},
               {"trial", report.trial},
               {"iteration", report.iteration},
               {"value", finite_or_null(report.value)}});
}

std::string line_of(const SearchEnd& end) {
  return line({{"type", "end"},
               {"trial", end.trial},
               {"outcome", word_of(end.outcome)},
               {"iteration", end.iteration},
               {"value", end.iteration > 0 ? finite_or_null(end.value) : Json()}});
}

std::string bye_line() {
  return line({{"type", "bye"}});
}

void SearchProtocol::on_asked(const std::vector<TrialId>& trials) {
  for (const TrialId trial : trials) {
    const bool is_new = !living_.contains(trial) && owed_.insert(trial).second;
    SGD_ASSERT(is_new && !no_more_);
    asked_end_ = std::max(asked_end_, trial + 1);
  }
}

void SearchProtocol::on_given(TrialId trial) {
  living_.insert(trial);
  asked_end_ = std::max(asked_end_, trial + 1);
}

void SearchProtocol::on_end(TrialId trial) {
  living_.erase(trial);
}

Result<SearchAnswer> SearchProtocol::take(std::string_view text) {
  if (text.size() > kSearchLineBytesMax)
    return fault(fmt::format("said a line of {} bytes; at most {}", text.size(), kSearchLineBytesMax));
  Diagnostics found;
  const auto document = json::read(text, "its line", found);
  if (!document || found.has_errors())
    return fault(fmt::format("said {}, which is no JSON of its protocol: {}", json::quote(text),
                             found.items.empty() ? "nothing" : found.items.front().message));
  const Json& message = document->value;
  if (!message.is_object() || !member(message, "type").is_string())
    return fault(fmt::format("said {}: each line is an object with a \"type\" (\"trial\", \"kill\" or \"no_more\")",
                             json::quote(text)));
  const std::string type = read_or(message, "type", "");
  if (type == "trial") return take_trial(message);
  if (type == "kill") return take_kill(message);
  if (type != "no_more")
    return fault(
        fmt::format("said a line of type {}: known are \"trial\", \"kill\" and \"no_more\"", json::quote(type)));
  no_more_ = true;
  never_given_.merge(owed_);
  return SearchAnswer(NoMoreTrials{});
}

Result<SearchAnswer> SearchProtocol::take_trial(const Json& message) {
  const auto trial = trial_of(message);
  if (!trial) return trial.error();
  const TrialId id = trial.value();
  if (no_more_) return fault(fmt::format("gave trial {} after it had said \"no_more\"", id));
  if (living_.contains(id)) return fault(fmt::format("gave trial {} twice", id));
  if (!owed_.contains(id)) return fault(fmt::format("gave trial {}, which was not asked for", id));
  const auto values = message.find("parameters");
  if (values == message.end()) return fault(fmt::format("gave trial {} without \"parameters\"", id));
  if (const std::string misfit = parameters_.misfit(*values); !misfit.empty())
    return fault(fmt::format("gave trial {} wrong values: {}", id, misfit));
  owed_.erase(id);
  living_.insert(id);
  return SearchAnswer(Trial{id, *values});
}

Result<SearchAnswer> SearchProtocol::take_kill(const Json& message) {
  const auto trial = trial_of(message);
  if (!trial) return trial.error();
  const TrialId id = trial.value();
  const bool was_given = id < asked_end_ && !owed_.contains(id) && !never_given_.contains(id);
  if (was_given) return SearchAnswer(KillTrial{id});
  return fault(fmt::format("wanted trial {} killed, which it has not given", id));
}

std::optional<TrialId> trial_given_in(std::string_view line) {
  const Json message = Json::parse(line, nullptr, false, true);  // With comments, as take() has it.
  const Json& trial = member(message, "trial");
  if (read_or(message, "type", "") != "trial" || !trial.is_number_unsigned()) return std::nullopt;
  return trial.get<TrialId>();
}

Result<std::vector<std::string>> SearchLines::take(std::string_view bytes) {
  std::vector<std::string> lines;
  while (!bytes.empty()) {
    const std::size_t end = std::min(bytes.find('\n'), bytes.size());
    if (begun_.size() + end > kSearchLineBytesMax)
      return fault(fmt::format("said a line of more than {} bytes", kSearchLineBytesMax));
    begun_.append(bytes.substr(0, end));
    if (end == bytes.size()) break;
    bytes.remove_prefix(end + 1);
    if (!begun_.empty()) lines.push_back(std::exchange(begun_, {}));
  }
  return lines;
}

}  // namespace sgd::tune

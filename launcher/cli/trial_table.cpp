#include "launcher/cli/trial_table.hpp"

#include <algorithm>
#include <iterator>
#include <limits>

#include <fmt/format.h>

#include "common/json/lenient.hpp"

namespace sgd::cli {
namespace {

using Json = nlohmann::ordered_json;

std::optional<double> number_of(const Json& event, const char* key) {
  double number = 0;
  if (!member(event, key).is_number()) return std::nullopt;
  read_if_fits(event, key, number);
  return number;
}

std::string shown_number(std::optional<double> value) {
  return value ? fmt::format("{:.6g}", *value) : "-";
}

/// What decides which trials are shown.
struct Ranked {
  std::int64_t number = 0;
  bool is_over = false;
  std::optional<double> best;
};

/// Columns as wide as their widest cell; the last one has no end.
std::vector<std::string> aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::vector<std::string> lines;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], widths[i]);
    while (!line.empty() && line.back() == ' ') line.pop_back();
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace

bool is_over(const std::string& state) {
  return state == "completed" || state == "stopped" || state == "failed" || state == "cancelled";
}

std::string shown_value(const Json& value) {
  if (value.is_number_float()) return fmt::format("{:.4g}", read_or(Json{{"is", value}}, "is", 0.0));
  return value.is_string() ? read_or(Json{{"is", value}}, "is", "") : dump_text(value);
}

void TrialTable::add(const Json& event) {
  const std::string what = read_or(event, "event", "");
  if (what == "experiment_started") {
    metric_ = read_or(event, "metric", "");
    is_highest_ = read_or(event, "mode", "") == "max";
    read_if_fits(event, "trials", planned_);
  }
  if (what == "experiment_resumed") {
    read_if_fits(event, "trials", planned_);
    has_failed_search_ = false;
  }
  if (what == "search_failed") has_failed_search_ = true;
  if (what == "trials_wanted") wanted_ += static_cast<std::int64_t>(member(event, "trials").size());
  const std::int64_t number = read_or(event, "trial", std::int64_t{-1});
  if (number < 0 || !what.starts_with("trial_")) return;
  drop_worst();  // Not at its end, which is still to be told.
  const bool was_dropped = dropped_ > 0 && what != "trial_started" && !trials_.contains(number);
  if (was_dropped) return;
  take(what, number, event);
  note_unplaced(what, number);
}

void TrialTable::take(const std::string& what, std::int64_t number, const Json& event) {
  Trial& trial = trials_[number];
  if (what == "trial_started") {
    trial.parameters = member(event, "parameters");
  } else if (what == "trial_report") {
    read_if_fits(event, "iteration", trial.iteration);
    trial.value = number_of(event, "value");
    if (trial.value && (!trial.best || is_better(*trial.value, *trial.best))) {
      trial.best = trial.value;
      trial.best_iteration = trial.iteration;
      trial.former = nullptr;
    }
    note(number, trial);
  } else if (what == "trial_stopping") {
    trial.state = "stopping";
    trial.why = read_or(event, "why", "");
  } else if (what == "trial_paused") {
    trial.state = "paused";
  } else if (what == "trial_decided") {
    const std::string action = read_or(event, "action", "");
    if (action == "resume" || action == "exploit") trial.state = "running";
    if (const Json& values = member(event, "values"); values.is_object()) trial.next = values;
  } else if (what == "trial_cloned") {
    note_copy(trial, event);
  } else if (what == "trial_resumed") {
    if (is_over(trial.state)) --ended_;
    if (trial.state == "failed") --failed_;
    ranked_.erase(rank_of(number));
    trial.state = read_or(event, "state", "running");
    if (trial.state == "pausing") trial.state = "running";  // Until it has what it is to copy.
    trial.why.clear();
  } else if (what == "trial_ended") {
    if (!is_over(trial.state)) ++ended_;
    trial.state = read_or(event, "state", "");
    trial.why = read_or(event, "why", "");
    trial.wall_s = read_or(event, "wall_s", 0.0);
    if (trial.state == "failed") ++failed_;
    if (kept_ && trial.state != "cancelled") ranked_.insert(rank_of(number));
  }
}

/// Without the donor's state its values are nobody's.
void TrialTable::note_copy(Trial& trial, const Json& event) {
  Json values = std::exchange(trial.next, nullptr);
  trial.has_no_copy = member(event, "checkpoint").is_null();
  trial.why.clear();
  if (!trial.has_no_copy && values.is_object()) {
    if (trial.best && trial.former.is_null()) trial.former = std::move(trial.parameters);
    trial.parameters = std::move(values);
  }
  if (!trial.has_no_copy) return;
  const std::int64_t donor = read_or(event, "donor", std::int64_t{-1});
  const std::string whose = donor < 0 ? "the other one" : fmt::format("trial {}", donor);
  trial.why = fmt::format("it goes on with its own values: {} had no checkpoint to copy", whose);
}

void TrialTable::note_unplaced(const std::string& what, std::int64_t number) {
  const bool begins = what == "trial_started" || what == "trial_resumed" || what == "trial_restarted";
  if (begins && trials_.at(number).state == "running")
    unplaced_.insert(number);
  else
    unplaced_.erase(number);  // It has said something, or is not to have a place any more.
  if (unplaced_.empty()) waits_ = false;
}

std::optional<std::int64_t> TrialTable::first_unplaced() const {
  if (unplaced_.empty()) return std::nullopt;
  return *unplaced_.begin();
}

void TrialTable::note_place(std::int64_t trial, bool waits) {
  if (!waits) unplaced_.erase(trial);
  waits_ = waits;
}

bool TrialTable::all_wait() const {
  return waits_ && std::all_of(trials_.begin(), trials_.end(), [this](const auto& trial) {
           return waits(trial.first) || is_over(trial.second.state) || trial.second.state == "paused";
         });
}

std::string TrialTable::shown_state(std::int64_t number) const {
  return waits(number) ? "placing" : trials_.at(number).state;
}

TrialTable::Rank TrialTable::rank_of(std::int64_t number) const {
  const std::optional<double>& best = trials_.at(number).best;
  if (!best) return {std::numeric_limits<double>::infinity(), number};
  return {is_highest_ ? -*best : *best, number};
}

/// The first trial stays: its parameters name the columns.
void TrialTable::drop_worst() {
  if (!kept_) return;
  for (auto worst = ranked_.end(); ranked_.size() > *kept_ + 1 && worst != ranked_.begin();) {
    --worst;
    if (worst->second == best_ || worst->second == trials_.begin()->first) continue;
    trials_.erase(worst->second);
    worst = ranked_.erase(worst);
    ++dropped_;
  }
}

bool TrialTable::may_go_on(const std::string& state) const {
  return state == "interrupted" || state == "cancelled" || state == "timed_out" || has_failed_search_;
}

bool TrialTable::is_better(double left, double right) const {
  return is_highest_ ? left > right : left < right;
}

void TrialTable::note(std::int64_t number, const Trial& trial) {
  if (!trial.best) return;
  const Trial* before = best_ ? &trials_.at(*best_) : nullptr;
  if (before == nullptr || is_better(*trial.best, *before->best) || (*trial.best == *before->best && number < *best_))
    best_ = number;
}

/// Its last key, where no other parameter ends with that.
std::string TrialTable::short_name(const std::string& parameter) const {
  const std::string last = parameter.substr(parameter.rfind('.') + 1);
  const Json& all = trials_.begin()->second.parameters;
  const auto ends_so = [&](const auto& item) { return item.key().substr(item.key().rfind('.') + 1) == last; };
  const auto items = all.items();
  return std::count_if(items.begin(), items.end(), ends_so) == 1 ? last : parameter;
}

std::vector<std::int64_t> TrialTable::shown(std::size_t rows) const {
  std::vector<std::int64_t> numbers;
  std::vector<Ranked> others;  // The best one is always there.
  others.reserve(trials_.size());
  for (const auto& [number, trial] : trials_) {
    if (number == best_ || begun() <= rows)
      numbers.push_back(number);
    else
      others.push_back({number, is_over(trial.state), trial.best});
  }
  const auto comes_first = [this](const Ranked& a, const Ranked& b) {
    if (a.is_over != b.is_over) return b.is_over;
    if (a.best.has_value() != b.best.has_value()) return a.best.has_value();
    if (a.best && *a.best != *b.best) return is_better(*a.best, *b.best);
    return a.number < b.number;
  };
  // A few of many are looked for several times a second.
  const std::size_t room = std::min(others.size(), rows - std::min(rows, numbers.size()));
  const auto end = others.begin() + static_cast<std::ptrdiff_t>(room);
  std::partial_sort(others.begin(), end, others.end(), comes_first);
  for (auto one = others.begin(); one != end; ++one) numbers.push_back(one->number);
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

std::vector<std::string> TrialTable::lines(std::size_t rows) const {
  if (trials_.empty()) return {};
  std::vector<std::vector<std::string>> cells(1, {"trial", "state"});
  std::vector<std::string> parameters;
  for (const auto& [name, value] : trials_.begin()->second.parameters.items()) parameters.push_back(name);
  for (const std::string& name : parameters) cells[0].push_back(short_name(name));
  for (const std::string& name : {std::string("at"), metric_, std::string("best")}) cells[0].push_back(name);
  const std::vector<std::int64_t> numbers = shown(rows);
  for (const std::int64_t number : numbers) {
    const Trial& trial = trials_.at(number);
    const bool has_no_copy = trial.has_no_copy && !is_over(trial.state);
    std::vector<std::string> row = {fmt::format("{}{}", number, number == best_ ? " *" : ""),
                                    shown_state(number) + (has_no_copy ? ", not copied" : "")};
    const Json& values = trial.best_parameters();
    for (const std::string& name : parameters) row.push_back(shown_value(member(values, name.c_str())));
    row.push_back(trial.iteration > 0 ? fmt::format("{}", trial.iteration) : "-");
    row.push_back(shown_number(trial.value));
    const bool has_peak = trial.best && trial.best_iteration != trial.iteration;
    row.push_back(shown_number(trial.best) + (has_peak ? fmt::format(" at {}", trial.best_iteration) : ""));
    cells.push_back(std::move(row));
  }
  std::vector<std::string> lines = aligned(cells);
  if (numbers.size() < begun())
    lines.push_back(fmt::format("... and {} more, which have ended", begun() - numbers.size()));
  return lines;
}

std::string TrialTable::progress() const {
  std::string text = fmt::format("{}/{} trials", ended_, std::max<std::int64_t>(planned_, ended_));
  const auto placing = static_cast<std::int64_t>(waits_ ? unplaced_.size() : 0);
  const auto at_work = static_cast<std::int64_t>(begun()) - ended_ - placing;
  if (at_work > 0) text += fmt::format(", {} at work", at_work);
  if (placing > 0) text += fmt::format(", {} placing", placing);
  if (failed_ > 0) text += fmt::format(", {} failed", failed_);
  if (best_) text += fmt::format("  best {} {} (trial {})", metric_, shown_number(trials_.at(*best_).best), *best_);
  return text;
}

std::string TrialTable::values_of(const Trial& trial) const {
  std::string text;
  for (const auto& [name, value] : trial.best_parameters().items())
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", short_name(name), shown_value(value));
  return text;
}

std::string TrialTable::narrate(const Json& event) const {
  const std::string what = read_or(event, "event", "");
  const std::int64_t number = read_or(event, "trial", std::int64_t{-1});
  if (what == "metric_missing") {
    std::string names;
    for (const Json& one : member(event, "reported")) names += (names.empty() ? "" : ", ") + shown_value(one);
    return fmt::format("trial {} has reported no \"{}\"; it has reported: {}", number, read_or(event, "metric", ""),
                       names.empty() ? "nothing that is a number" : names);
  }
  if (what == "last_line_refused")
    return fmt::format("trial {}: what it printed last is no line of metrics: {}", number, read_or(event, "why", ""));
  if (what == "search_failed")
    return read_or(event, "why", "") + "; no trial comes any more, those that are there go on";
  if (what == "search_ended") return read_or(event, "why", "") + "; all trials are given";
  const auto found = trials_.find(number);
  if (found == trials_.end()) return {};
  if (what == "trial_cloned" && found->second.has_no_copy)
    return fmt::format("trial {}: {}", number, found->second.why);
  if (what != "trial_ended") return {};
  const Trial& trial = found->second;
  std::string text = fmt::format("trial {} {}", number, trial.state);
  if (trial.best) text += fmt::format(": {} {} at {}", metric_, shown_number(trial.best), trial.best_iteration);
  text += fmt::format(" ({})", values_of(trial));
  if (!trial.why.empty()) text += "; " + trial.why;
  return text;
}

Json TrialTable::to_json() const {
  Json rows = Json::array();
  for (const auto& [number, trial] : trials_)
    rows.push_back({{"trial", number},
                    {"state", shown_state(number)},
                    {"parameters", trial.parameters},
                    {"best_parameters", trial.best ? trial.best_parameters() : Json(nullptr)},
                    {"iteration", trial.iteration},
                    {"value", trial.value ? Json(*trial.value) : Json(nullptr)},
                    {"best", trial.best ? Json(*trial.best) : Json(nullptr)},
                    {"best_iteration", trial.best_iteration},
                    {"why", trial.why},
                    {"wall_s", trial.wall_s}});
  return {{"schema_version", 1},
          {"metric", metric_},
          {"mode", is_highest_ ? "max" : "min"},
          {"trials", planned_},
          {"best", best_ ? Json(*best_) : Json(nullptr)},
          {"rows", std::move(rows)}};
}

}  // namespace sgd::cli

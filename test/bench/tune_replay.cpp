// Plays streams of reports against the schedulers, for tune_parity.py, which plays the same against others'. A line in,
// an object, is a stream; a line out its decisions, in order, one array per event:
//   {"tune": {...}, "trials": 4, "events": [["report", trial, epochs further, value or null, others wait],
//                                           ["end", trial, outcome], ["next"]]}
//   -> {"decisions": [[...], ...], "values": [of each trial], "runners": [...]}
// An event about a trial that does not run is passed over: []. A trial's epoch counts up, and after a copy from its
// donor's. "null" is no number.

#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "launcher/tune/make_scheduler.hpp"

namespace {

using Json = nlohmann::json;
using namespace sgd::tune;

/// Parsed once for all streams with the same.
const ExperimentSpec& spec_of(const Json& tune) {
  static std::map<std::string, ExperimentSpec> known;
  const std::string text = tune.dump();
  const auto found = known.find(text);
  if (found != known.end()) return found->second;
  const sgd::job::LoadResult loaded = sgd::job::load_resolved({{"command", {"true"}}, {"tune", tune}});
  sgd::Diagnostics diagnostics = loaded.diagnostics;
  auto spec = parse_experiment(loaded, diagnostics);
  for (const sgd::Diagnostic& item : diagnostics.items) std::cerr << item.text() << "\n";
  if (!spec) std::exit(2);
  return known.emplace(text, std::move(*spec)).first->second;
}

class Stream {
 public:
  explicit Stream(const Json& given) : spec_(spec_of(given.at("tune"))), scheduler_(make_scheduler(spec_)) {
    const TrialList list = spec_.list();
    for (TrialId trial = 0; trial < given.at("trials").get<TrialId>(); ++trial) {
      scheduler_->add_trial(trial, list.at(trial).values);
      values_.push_back(list.at(trial).values);
      running_.insert(trial);
    }
    const Json own = scheduler_->state().at("own");
    if (own.contains("runners")) runners_ = own.at("runners");
    for (const Json& event : given.at("events")) play(event);
  }

  [[nodiscard]] Json result() const { return {{"decisions", decisions_}, {"values", values_}, {"runners", runners_}}; }

 private:
  void play(const Json& event) {
    Decisions told;
    const std::string kind = event.at(0);
    if (kind == "next") {
      if (const auto next = scheduler_->next_paused(false)) {
        scheduler_->on_resumed(next->trial);
        running_.insert(next->trial);
        told.push_back(*next);
      }
    } else if (const TrialId trial = event.at(1); running_.contains(trial)) {
      if (kind == "end") {
        running_.erase(trial);
        told = scheduler_->on_end(trial, event.at(2) == "completed" ? Outcome::kCompleted : Outcome::kFailed);
      } else {
        const Json& value = event.at(3);
        std::int64_t& epoch = epochs_[trial];
        const std::int64_t said = epoch + event.at(2).get<std::int64_t>();
        epoch = std::max(epoch, said);
        const double number = value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
        told = scheduler_->on_report({trial, said, number, event.at(4).get<bool>()});
        obey(told.front());
      }
    }
    Json out = Json::array();
    for (const Decision& decision : told) out.push_back(to_json(decision));
    decisions_.push_back(std::move(out));
  }

  void obey(const Decision& decision) {
    if (decision.action == Action::kStop || decision.action == Action::kPause || decision.waits)
      running_.erase(decision.trial);
    if (decision.action == Action::kExploit) epochs_[decision.trial] = decision.donor_iteration;
  }

  const ExperimentSpec& spec_;
  std::unique_ptr<Scheduler> scheduler_;
  std::set<TrialId> running_;
  std::map<TrialId, std::int64_t> epochs_;
  Json values_ = Json::array();
  Json runners_;
  Json decisions_ = Json::array();
};

}  // namespace

int main() {
  std::ios::sync_with_stdio(false);
  for (std::string line; std::getline(std::cin, line);)
    std::cout << Stream(Json::parse(line)).result() << "\n" << std::flush;
  return 0;
}

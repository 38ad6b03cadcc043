// What Determined's published searcher tests expect (master/pkg/searcher of determined-ai/determined), as facts in
// tables of ours: how far each trial gets, and how many a grid has.

#include <deque>
#include <set>

#include <catch2/catch.hpp>

#include "launcher/tune/hyperband.hpp"
#include "story.hpp"

namespace sgd::tune {
namespace {

using Json = nlohmann::json;

/// How far trials of these values get, three at a time, in their order; one of `leaves` fails after its first report.
std::vector<std::int64_t> epochs_of(const ExperimentSpec& spec, const std::vector<double>& values,
                                    const std::set<TrialId>& leaves = {}) {
  const auto scheduler = make_scheduler(spec);
  std::vector<std::int64_t> epochs(values.size(), 0);
  std::deque<TrialId> running;
  TrialId begun = 0;
  const auto count = static_cast<TrialId>(values.size());
  for (;;) {
    while (running.size() < 3) {
      if (const auto next = scheduler->next_paused(begun < count)) {
        scheduler->on_resumed(next->trial);
        running.push_back(next->trial);
      } else if (begun < count) {
        scheduler->add_trial(begun, Values::object());
        running.push_back(begun++);
        if (begun == count) CHECK(scheduler->on_no_more_trials().empty());
      } else {
        break;
      }
    }
    if (running.empty()) return epochs;
    const TrialId trial = running.front();
    running.pop_front();
    auto& epoch = epochs[static_cast<std::size_t>(trial)];
    epoch += 10;
    const Action action =
        scheduler->on_report({trial, epoch, values[static_cast<std::size_t>(trial)], false}).front().action;
    if (leaves.contains(trial)) {
      CHECK(scheduler->on_end(trial, Outcome::kFailed).empty());
    } else if (action == Action::kContinue) {
      running.push_front(trial);
    }
  }
}

ExperimentSpec halving(const char* mode, const char* of) {
  return test::spec_with(
      {{"type", "asha"}, {"grace_epochs", 10}, {"max_epochs", 90}, {"reduction_factor", 3}, {"mode", of}}, mode);
}

}  // namespace

TEST_CASE("determined: promotion among twelve trials, three at a time") {
  std::vector<double> rising;
  for (int i = 1; i <= 12; ++i) rising.push_back(i / 100.0);
  const std::vector<double> falling(rising.rbegin(), rising.rend());
  const std::vector<std::int64_t> expected{90, 30, 30, 30, 10, 10, 10, 10, 10, 10, 10, 10};
  CHECK(epochs_of(halving("min", "promote"), rising) == expected);
  CHECK(epochs_of(halving("max", "promote"), falling) == expected);
  // One that leaves early is still one of the best that were promoted.
  const std::vector<std::int64_t> without{90, 30, 10, 30, 10, 10, 10, 10, 10, 10, 10, 10};
  CHECK(epochs_of(halving("min", "promote"), rising, {2}) == without);
  CHECK(epochs_of(halving("max", "promote"), falling, {2}) == without);
}

TEST_CASE("determined: by the stopping rule each trial that is worse than the one before it ends") {
  const ExperimentSpec spec = halving("min", "stop");
  CHECK(epochs_of(spec, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}) ==
        std::vector<std::int64_t>{90, 10, 10, 10, 10, 10, 10, 10, 10, 10});
  CHECK(epochs_of(spec, {0.5, 0.4}) == std::vector<std::int64_t>{90, 90});
  CHECK(epochs_of(spec, {0.5, 0.6}) == std::vector<std::int64_t>{90, 10});
}

TEST_CASE("determined: where rungs are, counted from the end") {
  using Rungs = std::vector<std::int64_t>;
  CHECK(Hyperband({Mode::kMin, 9, 3}).rungs_of(2) == Rungs{1, 3, 9});
  CHECK(Hyperband({Mode::kMin, 10, 2}).rungs_of(3) == Rungs{1, 2, 5, 10});
  CHECK(Hyperband({Mode::kMin, 9, 3}).rungs_of(0) == Rungs{9});
  CHECK(Hyperband({Mode::kMin, 900, 3}).rungs_of(2) == Rungs{100, 300, 900});
}

TEST_CASE("determined: how many trials a grid has, and in which order") {
  const std::pair<std::vector<int>, TrialId> rows[] = {{{1}, 1},     {{4}, 4},        {{1, 4}, 4},
                                                       {{3, 4}, 12}, {{2, 3, 4}, 24}, {{2, 2, 3, 3, 4, 5}, 720}};
  for (const auto& [counts, trials] : rows) {
    Json parameters;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      Json values = Json::array();
      for (int value = 0; value < counts[i]; ++value) values.push_back(value);
      parameters["p" + std::to_string(i)] = {{"choice", values}};
    }
    const ExperimentSpec spec =
        test::spec_of({{"parameters", parameters}, {"search", {{"type", "grid"}}}, {"samples", 1}});
    CHECK(spec.list().size() == trials);
  }
  const ExperimentSpec spec =
      test::spec_of({{"parameters", {{"a", {{"qrandint", {0, 20, 10}}}}, {"b", {{"qrandint", {0, 10, 5}}}}}},
                     {"search", {{"type", "grid"}}},
                     {"samples", 1}});
  std::string order;
  for (TrialId i = 0; i < spec.list().size(); ++i)
    order += spec.list().at(i).values.at("a").dump() + "," + spec.list().at(i).values.at("b").dump() + " ";
  CHECK(order == "0,0 0,5 0,10 10,0 10,5 10,10 20,0 20,5 20,10 ");
}

}  // namespace sgd::tune

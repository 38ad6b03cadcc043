// An experiment as panels and as Ray's results: made of its events and its trials' reports alone.

#include <catch2/catch.hpp>

#include "launcher/cli/ray_results.hpp"
#include "launcher/cli/terminal_plot.hpp"
#include "launcher/cli/trial_curves.hpp"

namespace sgd::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Said {
  int trial;
  Json parameters;
  std::vector<Json> values;
};

std::vector<Panel> panels_of(const std::string& mode, const std::vector<Said>& trials) {
  TrialCurves curves;
  curves.add({{"event", "experiment_started"}, {"metric", "score"}, {"mode", mode}});
  for (const Said& said : trials) {
    curves.add({{"event", "trial_started"}, {"trial", said.trial}, {"parameters", said.parameters}});
    for (std::size_t index = 0; index < said.values.size(); ++index)
      curves.add(
          {{"event", "trial_report"}, {"trial", said.trial}, {"iteration", index + 1}, {"value", said.values[index]}});
  }
  return curves.panels();
}

}  // namespace

TEST_CASE("tune plot: curves of all trials, then the metric over each parameter, the best one marked") {
  const auto panels = panels_of("max", {{0, {{"lr", 0.001}, {"kind", "a"}}, {0.25, 0.5}},
                                        {1, {{"lr", 1.0}, {"kind", "b"}}, {0.75}},
                                        {2, {{"lr", 0.1}, {"kind", "c"}}, {nullptr}},
                                        {3, {{"lr", 0.01}, {"kind", "a"}}, {0.5, 0.625, 0.75}}});
  REQUIRE(panels.size() == 3);
  CHECK(panels[0].title == "score of 3 trials: best 0.75 (trial 1)");  // Of two that are equal the earlier one.
  CHECK(panels[0].is_joined);
  CHECK(panels[0].marked == 1);
  CHECK(panels[0].curves[2].points == std::vector<std::pair<double, double>>{{1, 0.5}, {2, 0.625}, {3, 0.75}});
  CHECK(panels[0].left == "1");
  CHECK(panels[0].right == "3");
  CHECK(panels[1].title == "score over lr: best at 1");
  CHECK_FALSE(panels[1].is_joined);
  CHECK(panels[1].over == "lr (logarithmic)");
  CHECK(panels[1].left == "0.001");
  CHECK(panels[1].right == "1");
  CHECK(panels[1].curves[2].points.front().first == Approx(-2));
  CHECK(panels[1].curves[2].points.front().second == 0.75);
  CHECK(panels[2].left == "a");
  CHECK(panels[2].right == "b");
  CHECK(panels[2].curves[0].points.front().first == panels[2].curves[2].points.front().first);
  const std::string text = panel_text(panels[2], {.columns = 40, .rows = 4});
  CHECK(text.find("*") != std::string::npos);
  CHECK(text.find("kind") != std::string::npos);
}

TEST_CASE("tune plot: a best value stands over the parameters that it was reported with") {
  TrialCurves curves;
  curves.add({{"event", "experiment_started"}, {"metric", "score"}, {"mode", "max"}});
  curves.add({{"event", "trial_started"}, {"trial", 0}, {"parameters", {{"lr", 1}}}});
  curves.add({{"event", "trial_report"}, {"trial", 0}, {"iteration", 1}, {"value", 0.5}});
  curves.add({{"event", "trial_decided"}, {"trial", 0}, {"action", "exploit"}, {"values", {{"lr", 2}}}});
  curves.add({{"event", "trial_cloned"}, {"trial", 0}, {"checkpoint", "/x/trials/0001/checkpoints/step"}});
  curves.add({{"event", "trial_report"}, {"trial", 0}, {"iteration", 2}, {"value", 0.25}});
  const auto panels = curves.panels();
  REQUIRE(panels.size() == 2);
  CHECK(panels[1].title == "score over lr: best at 1");
  CHECK(panels[1].curves.front().points.front().first == 1);
}

TEST_CASE("tune plot: values of which most are equal do not take the room of the others") {
  const auto panels =
      panels_of("max", {{0, {{"x", 1}}, {0.25, 0.5}}, {1, {{"x", 2}}, {1.0, 1.0}}, {2, {{"x", 3}}, {1.0, 1.0, 1.0}}});
  REQUIRE(panels.size() == 2);
  CHECK(panels[0].y.least == 0.25);
  CHECK(panels[0].y.greatest == 1);
  CHECK(panels[1].y.least < 0.55);
  // One that has diverged is far from all others all the same.
  const auto lowest =
      panels_of("min", {{0, {{"x", 1}}, {0.0, 0.0, 0.0, 0.0}}, {1, {{"x", 2}}, {1.0, 2.0}}, {2, {{"x", 3}}, {1e30}}});
  CHECK(lowest[0].y.least == 0);
  CHECK(lowest[0].y.greatest == Approx(40));
}

TEST_CASE("tune plot: a trial that has diverged does not press the others together") {
  const auto panels = panels_of("min", {{0, {{"x", 1}}, {1.0, 0.5}}, {1, {{"x", 2}}, {0.75}}, {2, {{"x", 3}}, {1e30}}});
  REQUIRE(panels.size() == 2);
  CHECK(panels[0].y.least == 0.5);
  CHECK(panels[0].y.greatest == Approx(10.5));
  CHECK(panels[1].y.greatest < 10);
}

TEST_CASE("tune plot: each of tens of thousands of trials has a value of its own that is no number") {
  constexpr int kTrials = 100'000;  // By the square of it this takes minutes.
  std::vector<Said> trials;
  for (int trial = 0; trial < kTrials; ++trial) trials.push_back({trial, {{"x", "v" + std::to_string(trial)}}, {0.5}});
  const auto panels = panels_of("max", trials);
  REQUIRE(panels.size() == 2);
  CHECK(panels[1].curves.back().points.front().first == kTrials - 1);
  CHECK(panels[1].left == "v0");
  CHECK(panels[1].over == "x (100000 values)");
  trials.resize(3);
  CHECK(panels_of("max", trials).at(1).over == "x (v0 v1 v2)");
}

TEST_CASE("tune plot: one trial, equal values, nothing reported") {
  CHECK(panels_of("min", {}).empty());
  CHECK(panels_of("min", {{0, {{"x", 1}}, {nullptr}}}).empty());
  const auto panels = panels_of("min", {{0, {{"x", 1}, {"flag", true}}, {2}}});
  REQUIRE(panels.size() == 3);
  for (const Panel& panel : panels) {
    CHECK(panel.x.least < panel.x.greatest);
    CHECK(panel.y.least < panel.y.greatest);
    CHECK(panel.right.empty());
    CHECK_FALSE(panel_text(panel, {}).empty());
  }
}

TEST_CASE("tune export: an epoch's training and validation are one of Ray's results") {
  const std::vector<Json> lines = {
      {{"phase", "train"}, {"epoch", 1}, {"batch", 10}, {"loss", 9}, {"_timestamp", 100}},
      {{"phase", "train"},
       {"epoch", 1},
       {"loss", 0.5},
       {"generation", 1},
       {"_time_this_iter_s", 1.5},
       {"_timestamp", 101}},
      {{"phase", "validate"}, {"epoch", 1}, {"val_loss", 0.6}, {"_time_this_iter_s", 0.5}, {"_timestamp", 102}},
      {{"phase", "train"}, {"epoch", 2}, {"loss", 0.25}, {"_time_this_iter_s", 1.0}, {"_timestamp", 103}}};
  const auto results = ray_results({7, {{"lr", 0.1}}, true}, lines);
  REQUIRE(results.size() == 2);
  CHECK(results[0].at("training_iteration") == 1);
  CHECK(results[0].at("loss") == 0.5);
  CHECK(results[0].at("val_loss") == 0.6);
  CHECK(results[0].at("time_this_iter_s") == 2.0);
  CHECK(results[0].at("timestamp") == 102);
  CHECK(results[0].at("done") == false);
  CHECK_FALSE(results[0].contains("phase"));
  CHECK(results[1].at("time_total_s") == 3.0);
  CHECK(results[1].at("done") == true);
  CHECK(results[1].at("trial_id") == "trial_0007");
  CHECK(results[1].at("experiment_tag") == "7_lr=0.1");
  CHECK(results[1].at("config").at("lr") == 0.1);
  CHECK(ray_results({0, Json::object(), true}, {}).empty());
}

}  // namespace sgd::cli

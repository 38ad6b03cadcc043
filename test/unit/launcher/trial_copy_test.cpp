// What people see of a trial that was to copy another one.

#include <catch2/catch.hpp>

#include "launcher/cli/trial_table.hpp"

namespace sgd::cli {

TEST_CASE("trial table: a trial for which nothing could be copied has its own values, and that is said") {
  using nlohmann::ordered_json;
  const ordered_json copies = {
      {"event", "trial_decided"}, {"trial", 1}, {"action", "exploit"}, {"values", {{"lr", 0.75}}}};
  ordered_json cloned = {{"event", "trial_cloned"}, {"trial", 1}, {"donor", 0}, {"checkpoint", nullptr}};
  TrialTable table;
  table.add({{"event", "experiment_started"}, {"trials", 2}, {"metric", "loss"}, {"mode", "min"}});
  for (const int trial : {0, 1})
    table.add({{"event", "trial_started"}, {"trial", trial}, {"parameters", {{"lr", 0.25}}}});
  table.add({{"event", "trial_report"}, {"trial", 1}, {"iteration", 1}, {"value", 0.5}});
  table.add(copies);
  table.add(cloned);
  CHECK(table.narrate(cloned) == "trial 1: it goes on with its own values: trial 0 had no checkpoint to copy");
  CHECK(table.trials().at(1).parameters.at("lr") == 0.25);
  CHECK(table.trials().at(1).best_parameters().at("lr") == 0.25);
  CHECK(table.lines(10).back() == "1 *    running, not copied  0.25  1   0.5   0.5");
  CHECK(table.to_json()["rows"][1]["state"] == "running");
  // The next one finds something.
  cloned["checkpoint"] = "/x/checkpoints/step-1";
  table.add(copies);
  table.add(cloned);
  CHECK(table.narrate(cloned).empty());
  CHECK(table.trials().at(1).parameters.at("lr") == 0.75);
  CHECK(table.trials().at(1).why.empty());
  table.add({{"event", "trial_report"}, {"trial", 1}, {"iteration", 2}, {"value", 0.25}});
  CHECK(table.lines(10).back() == "1 *    running  0.75  2   0.25  0.25");
}

}  // namespace sgd::cli

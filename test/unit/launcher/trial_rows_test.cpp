// The table of an experiment's trials that other programs read.

#include <catch2/catch.hpp>

#include "launcher/cli/trial_rows.hpp"

namespace sgd::cli {
namespace {

std::vector<nlohmann::ordered_json> rows_of(const char* metric, const nlohmann::ordered_json& parameters) {
  TrialTable table;
  table.add({{"event", "experiment_started"}, {"trials", 1}, {"metric", metric}, {"mode", "min"}});
  table.add({{"event", "trial_started"}, {"trial", 0}, {"parameters", parameters}});
  table.add({{"event", "trial_report"}, {"trial", 0}, {"iteration", 1}, {"value", 0.5}});
  table.add({{"event", "trial_decided"}, {"trial", 0}, {"action", "exploit"}, {"values", {{"lr", 0.75}}}});
  table.add({{"event", "trial_cloned"}, {"trial", 0}, {"checkpoint", "/x/trials/0001/checkpoints/step"}});
  table.add({{"event", "trial_report"}, {"trial", 0}, {"iteration", 2}, {"value", 0.625}});
  return trial_rows(table);
}

}  // namespace

TEST_CASE("trial rows: a row has the parameters of its best value") {
  const auto rows = rows_of("loss", {{"lr", 0.25}});
  REQUIRE(rows.size() == 1);
  const nlohmann::ordered_json whole = {{"trial", 0},    {"state", "running"}, {"lr", 0.25},          {"iteration", 2},
                                        {"loss", 0.625}, {"best", 0.5},        {"best_iteration", 1}, {"wall_s", 0.0}};
  CHECK(rows.front() == whole);
}

TEST_CASE("trial rows: a parameter, or the metric, that is called as a column of ours takes nothing from it") {
  const auto row =
      rows_of("loss", {{"state", "solid"}, {"iteration", 7}, {"best", 8}, {"loss", 9}, {"wall_s", 10}}).front();
  CHECK(row.at("state") == "running");
  CHECK(row.at("config/state") == "solid");
  CHECK(row.at("iteration") == 2);
  CHECK(row.at("config/iteration") == 7);
  CHECK(row.at("best") == 0.5);
  CHECK(row.at("config/best") == 8);
  CHECK(row.at("loss") == 0.625);
  CHECK(row.at("config/loss") == 9);
  CHECK(row.at("config/wall_s") == 10);
  const auto other = rows_of("best", {{"best", 8}}).front();
  CHECK(other.at("metric/best") == 0.625);
  CHECK(other.at("best") == 0.5);
  CHECK(other.at("config/best") == 8);
}

}  // namespace sgd::cli

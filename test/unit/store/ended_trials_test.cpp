// What is kept of trials that have ended: little, and enough for who asks.

#include "launcher/coordinator/ended_trials.hpp"

#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "launcher/storage/event_store.hpp"
#include "store_world.hpp"

using namespace sgd;
using namespace sgd::test;
using coordinator::EndedTrials;

namespace {

storage::StoredRun experiment() {
  storage::StoredRun row;
  row.id = "my.search";
  row.name = "search";
  row.owner = "anna";
  row.request_id = "r1";
  row.run_dir = "/runs/my.search";
  return row;
}

storage::StoredRun trial(int number) {
  storage::StoredRun row = experiment();
  row.id = fmt::format("my.search.{:04}", number);
  row.request_id.clear();
  row.run_dir = fmt::format("/runs/my.search/trials/{:04}", number);
  row.num_workers = 3;
  row.state = number % 2 == 0 ? "succeeded" : "failed";
  row.exit_code = number % 2;
  row.submitted_s = 10 + number;
  row.finished_s = 20 + number;
  row.wall_s = 10;
  row.lines_before = {4, 5};
  row.summary = "{}";
  return row;
}

bool is_same(const storage::StoredRun& left, const storage::StoredRun& right) {
  const auto values = [](const storage::StoredRun& row) {
    return std::tie(row.id, row.name, row.owner, row.request_id, row.run_dir, row.num_workers, row.state, row.exit_code,
                    row.submitted_s, row.finished_s, row.wall_s, row.lines_before.events, row.lines_before.metrics);
  };
  return values(left) == values(right);
}

std::vector<storage::StoredRun> stored_rows(World& world) {
  world.kill();
  auto store = storage::EventStore::open(world.folder.state());
  REQUIRE(store.ok());
  auto rows = store.value()->load_runs();
  REQUIRE(rows.ok());
  return std::move(rows).value();
}

}  // namespace

TEST_CASE("ended trials: a row is whole again, without its summary") {
  EndedTrials trials;
  for (const int number : {7, 12345, 8}) REQUIRE(trials.add(trial(number), experiment()));
  for (const int number : {7, 8, 12345}) CHECK(is_same(*trials.row(trial(number).id, experiment()), trial(number)));
  CHECK(trials.of("my.search") == std::vector<RunId>{"my.search.0007", "my.search.0008", "my.search.12345"});
  trials.add_lines("my.search.0008", {1, 2});
  CHECK(trials.row("my.search.0008", experiment())->lines_before.metrics == 7);
  CHECK(trials.remove("my.search.0008"));
  CHECK_FALSE(trials.remove("my.search.0008"));
  for (const char* other : {"my.search.0008", "my.search.7", "my.search.", "my.search", "other.0007", ""})
    CHECK_FALSE(trials.row(other, experiment()));
  for (const int number : {7, 12345}) CHECK(trials.remove(trial(number).id));
  CHECK(trials.of("my.search").empty());
}

TEST_CASE("ended trials: a row that does not follow from its experiment's stays as it is") {
  EndedTrials trials;
  storage::StoredRun named = trial(1);
  named.name = "another";
  storage::StoredRun owned = trial(1);
  owned.owner = "bert";
  storage::StoredRun asked = trial(1);
  asked.request_id = "r2";
  storage::StoredRun moved = trial(1);
  moved.run_dir = "/runs/elsewhere";
  storage::StoredRun numbered = trial(1);
  numbered.id = "my.search.1";
  for (const storage::StoredRun& row : {named, owned, asked, moved, numbered, experiment()})
    CHECK_FALSE(trials.add(row, experiment()));
  CHECK(trials.of("my.search").empty());
}

TEST_CASE("ended trials: a summary is that of the folder, where it tells of the same end") {
  StateFolder folder;
  coordinator::RunRow row;
  row.id = "my.search.0002";
  row.state = "succeeded";
  row.wall_s = 10;
  row.has_summary_in_folder = true;
  row.run_dir = folder.run("x");
  std::filesystem::create_directories(row.run_dir);
  const auto read = [&row] { return nlohmann::json::parse(coordinator::read_summary(row)); };
  CHECK(read() == nlohmann::json{{"run", row.id}, {"state", "succeeded"}, {"exit_code", 0}, {"wall_s", 10.0}});
  const auto write = [&row](const nlohmann::json& summary) {
    std::ofstream(row.run_dir + "/summary.json") << summary.dump(2);
  };
  write({{"state", "succeeded"}, {"steps", 7}, {"results", std::string(20'000, 'x')}});
  CHECK(read() == nlohmann::json{{"state", "succeeded"}, {"steps", 7}, {"results", nullptr}});
  write({{"state", "failed"}, {"steps", 7}});
  CHECK_FALSE(read().contains("steps"));
  row.has_summary_in_folder = false;
  row.summary = R"({"steps": 9})";
  CHECK(read() == nlohmann::json{{"steps", 9}});
}

TEST_CASE("coordinator with a store: of trials that have ended no row is kept, and all of it is found") {
  constexpr int kTrials = 60;
  World world;
  world.restart();
  world.submit_experiment("x", kTrials);
  world.run_until_idle();
  for (int life = 0; life < 2; ++life) {
    INFO("life " << life);
    CHECK(world.shell().rows() == 1);
    CHECK(world.shell().ids("x.", 1000).size() == kTrials);
    CHECK(world.shell().ids("x.000", 1000).size() == 10);
    CHECK(world.shell().ids("x.000", 3) == std::vector<RunId>{"x.0000", "x.0001", "x.0002"});
    CHECK(world.shell().ids("x", 1000) == std::vector<RunId>{"x"});
    const auto row = world.shell().run("x.0007");
    REQUIRE(row);
    CHECK(row->state == "succeeded");
    CHECK(row->finished_s > row->submitted_s);
    CHECK(nlohmann::json::parse(read_summary(*row)).at("run") == "x.0007");
    CHECK(world.shell().is_trial("x.0007"));
    CHECK(world.shell().is_over("x.0007"));
    CHECK_FALSE(world.shell().is_over("x.0060"));
    CHECK_FALSE(world.shell().run("x.0060"));
    CHECK(world.shell().directory_of("x.0007") == world.folder.run("x") + "/trials/0007");
    CHECK_FALSE(world.shell().nodes_of("x.0007").empty());
    CHECK(world.shell().may_touch("x.0007", *world.shell().nodes_of("x.0007").begin()));
    world.restart();
    world.run_until_idle();
  }
  CHECK(world.warnings.empty());
  world.shell().forget_run("x");
  CHECK(world.shell().ids("x.", 1000).empty());
  CHECK_FALSE(world.shell().is_over("x.0007"));
  world.run_until_idle();
  CHECK(stored_rows(world).empty());
}

TEST_CASE("coordinator with a store: a trial that goes on after its end has its whole row, and its lines once") {
  World world(2, 1);
  world.script.epochs = 3000;  // They do not end by themselves.
  world.restart();
  world.submit_experiment("x");
  core::StopRequest stop;
  stop.at_once = true;
  for (int life = 0; life < 2; ++life) {
    INFO("life " << life);
    for (const char* file : {"trials/0000/metrics.jsonl", "trials/0001/metrics.jsonl"}) {
      const std::size_t before = world.lines("x", file);
      world.run_until([&] { return world.lines("x", file) > before; });
    }
    CHECK(world.shell().rows() == 3);
    world.shell().request_stop("x", stop);
    world.run_until_idle();
    CHECK(world.shell().rows() == 1);
    CHECK(world.shell().run("x.0000")->state != "live");
    world.restart();
    world.run_until_idle();
    CHECK(world.shell().rows() == 1);
    if (life == 0) REQUIRE(world.shell().resume_experiment("x", 0).ok());
  }
  CHECK(world.warnings.empty());
  for (const storage::StoredRun& row : stored_rows(world)) {
    INFO(row.id);
    CHECK(row.is_finished());
  }
}

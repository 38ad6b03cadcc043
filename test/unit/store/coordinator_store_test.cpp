// A coordinator with a store over several lives, with nodes that live on: nothing is acknowledged or written before it
// is committed, and no line is lost or doubled.

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "full_disk.hpp"
#include "launcher/coordinator/run_retention.hpp"
#include "store_world.hpp"

using namespace sgd;
using namespace std::chrono_literals;
using coordinator::CoordinatorShell;
using test::lines_of;
using test::World;

namespace {

/// Each report once and in order, each fact of each rank once, one beginning and one end.
void check_whole(const World& world, const RunId& id, std::size_t generations = 1) {
  INFO("run " << id);
  const auto metrics = lines_of(world.folder.run(id) + "/metrics.jsonl");
  CHECK(metrics.size() == static_cast<std::size_t>(world.script.lines()));
  for (std::size_t index = 0; index < metrics.size(); ++index)
    CHECK(metrics[index].at("_training_iteration") == index + 1);
  std::map<std::string, int> count;
  std::set<std::string> once;
  for (const auto& event : lines_of(world.folder.run(id) + "/events.jsonl")) {
    const std::string name = event.at("event");
    ++count[name];
    if (name.starts_with("worker_"))
      CHECK(once.insert(fmt::format("{} {} {}", name, event.at("generation").dump(), event.at("rank").dump())).second);
  }
  CHECK(count["run_started"] == 1);
  CHECK(count["run_finished"] == 1);
  CHECK(count["epoch_finished"] == world.script.epochs);
  CHECK(count["failure"] == static_cast<int>(generations) - 1);
  CHECK(std::filesystem::exists(world.folder.run(id) + "/summary.json"));
}

}  // namespace

TEST_CASE("coordinator with a store: a run over many lives is the run of one life") {
  World world;
  world.script.epochs = 3;
  world.script.window = 2;
  world.restart();
  SECTION("without a failure") {
    world.submit("run");
  }
  SECTION("with a rank that is killed") {
    world.script.killed_after = 12;
    world.submit("run");
  }
  int lives = 1;
  for (int target = 5; !world.shell().is_idle(); target += 5) {
    world.run_until([&] { return world.acknowledged() >= target || world.shell().is_idle(); });
    if (world.shell().is_idle()) break;
    world.restart();
    ++lives;
  }
  CHECK(lives > 5);
  check_whole(world, "run", world.script.killed_after >= 0 ? 2 : 1);
  // None twice; what a kill has left written and untold is in the files, which whoever comes back reads.
  CHECK(world.told["run"] <=
        static_cast<int>(world.lines("run", "events.jsonl") + world.lines("run", "metrics.jsonl")));
  CHECK(world.warnings.empty());
  const auto rows = world.shell().runs();
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].state == "succeeded");
  CHECK(rows[0].exit_code == 0);
  CHECK(rows[0].wall_s > 0);
}

TEST_CASE("coordinator with a store: what a kill has left of the files is made whole") {
  World world;
  world.script.epochs = 3;
  world.restart();
  world.submit("run");
  world.run_until([&] { return world.acknowledged() >= 30; });
  world.kill();
  const std::string events = world.folder.run("run") + "/events.jsonl";
  const std::string metrics = world.folder.run("run") + "/metrics.jsonl";
  const auto lines = world.lines("run", "metrics.jsonl");
  SECTION("a torn last line") {
    std::filesystem::resize_file(events, std::filesystem::file_size(events) - 10);
    std::ofstream(metrics, std::ios::app) << "{\"phase\": \"tr";
  }
  SECTION("no metrics") {
    std::filesystem::resize_file(metrics, 0);
  }
  SECTION("zeros where lines were, as after a power failure") {
    std::fstream file(metrics, std::ios::in | std::ios::out);
    file.seekp(300);
    file << std::string(100, '\0');
  }
  SECTION("no folder at all") {
    std::filesystem::remove_all(world.folder.run("run"));
  }
  world.restart();
  world.run_until([&] { return world.lines("run", "metrics.jsonl") >= lines; });
  world.run_until_idle();
  check_whole(world, "run");
}

TEST_CASE("coordinator with a store: nothing is acknowledged, written or accepted before it is committed") {
  World world;
  world.restart();
  world.submit("first");
  world.run_until([&] { return world.acknowledged() >= 4; });
  auto full = std::make_unique<test::FullDisk>();
  world.submit("second", "request");
  world.run_until([&] { return !world.troubles.empty(); });
  world.deliver();
  const auto go_on = [&world] {
    const auto later = std::chrono::steady_clock::now() + 300ms;
    world.run_until([&] { return std::chrono::steady_clock::now() > later; });
  };
  go_on();  // Lines of what was committed before are written beside the event loop.
  const auto acknowledged = world.acknowledged();
  const auto events = world.lines("first", "events.jsonl");
  const auto accepted = world.accepted;
  // The agents go on meanwhile, and nothing of that shows.
  go_on();
  CHECK(world.acknowledged() == acknowledged);
  CHECK(world.lines("first", "events.jsonl") == events);
  CHECK(world.lines("second", "events.jsonl") == 0);
  CHECK(world.accepted == accepted);
  full.reset();
  world.run_until_idle();
  CHECK(world.accepted == std::vector<std::string>{"first", "second"});
  check_whole(world, "first");
  check_whole(world, "second");
}

TEST_CASE("coordinator with a store: the same request makes one run, in every life") {
  World world;
  world.restart();
  world.submit("one", "request");
  world.submit("two", "request");  // Before the first is committed.
  world.submit("three", "other");
  world.run_until([&] { return world.accepted.size() == 3; });
  CHECK(world.accepted == std::vector<std::string>{"one", "one", "three"});
  world.restart();
  world.submit("four", "request");
  world.run_until_idle();
  world.restart();  // Cuts the log.
  world.submit("five", "request");
  world.run_until([&] { return world.accepted.size() == 5; });
  CHECK(world.accepted[3] == "one");
  CHECK(world.accepted[4] == "one");
  CHECK(world.lines("two", "events.jsonl") == 0);
  CHECK(world.shell().runs().size() == 2);
  CHECK(world.shell().run_of_request("other") == "three");
  CHECK_FALSE(world.shell().run_of_request("").has_value());
}

TEST_CASE("coordinator with a store: when all have ended the log is cut, and nodes are still known") {
  World world;
  world.restart();
  world.submit("one");
  world.run_until_idle();
  world.restart();
  CHECK(world.shell().runs().size() == 1);
  CHECK(world.shell().nodes().size() == 2);
  world.submit("two");  // The same agents: their facts count on.
  world.run_until_idle();
  check_whole(world, "one");
  check_whole(world, "two");
  world.restart();
  world.run_until_idle();
  const auto rows = world.shell().runs();
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].id == "one");
  CHECK(rows[1].id == "two");
  CHECK(rows[1].summary.find("\"state\":\"succeeded\"") != std::string::npos);
  CHECK(world.stored_events() < 1010);
}

TEST_CASE("coordinator with a store: a run that was removed does not come back at the next start") {
  World world;
  SECTION("while its events are in the log") {}
  SECTION("when the log was cut") {
    world.cut_after = {10, 30, 1 << 20};
  }
  world.restart();
  for (const char* run : {"gone", "kept"}) world.submit(run);
  world.run_until_idle();
  std::filesystem::remove_all(world.folder.run("gone"));
  world.shell().forget_run("gone");
  world.run_until_idle();
  for (int life = 0; life < 2; ++life) {
    world.restart();
    world.run_until_idle();
    REQUIRE(world.shell().runs().size() == 1);
    CHECK(world.shell().runs().front().id == "kept");
    CHECK_FALSE(std::filesystem::exists(world.folder.run("gone")));
  }
  check_whole(world, "kept");
  world.submit("gone");  // The name is free again.
  world.run_until_idle();
  check_whole(world, "gone");
  CHECK(world.warnings.empty());
}

TEST_CASE("coordinator with a store: the log is cut in a long life, too") {
  World world;
  world.restart();
  world.script.pace = 10us;
  for (int number = 0; number < 20; ++number) {
    world.submit(fmt::format("run{:02}", number));
    world.run_until_idle();
  }
  for (int number = 0; number < 20; ++number) check_whole(world, fmt::format("run{:02}", number));
  CHECK(world.stored_events() < world.cut_after.idle_events + 100);
}

TEST_CASE("coordinator with a store: the log is cut under live runs, in every life, and no line is lost or doubled") {
  World world;
  world.script.epochs = 40;
  world.script.pace = 4ms;
  world.cut_after = {10, 30, 1 << 20};
  SECTION("without a failure") {}
  SECTION("with a rank that is killed") {
    world.script.killed_after = 12;
  }
  world.restart();
  world.submit("run");
  world.submit("other", "", 1);
  std::uint64_t most = 0;
  int lives = 1;
  for (int target = 20; !world.shell().is_idle(); target += 20, ++lives) {
    // The nodes wait for a cut that takes long, so that their runs do not end before it.
    world.run_until([&] {
      const bool is_short = world.shell().log_length() < 40;
      world.script.window = is_short ? 8 : 0;
      return (world.acknowledged() >= target && is_short) || world.shell().is_idle();
    });
    if (world.shell().is_idle()) break;
    most = std::max(most, world.stored_events());
    world.restart();
  }
  CHECK(lives > 1);
  CHECK(most < 100);
  world.restart();
  world.run_until_idle();
  CHECK(world.warnings.empty());
  CHECK(world.troubles.empty());
  for (const char* run : {"run", "other"}) {
    CHECK(world.told[run] <= static_cast<int>(world.lines(run, "events.jsonl") + world.lines(run, "metrics.jsonl")));
    check_whole(world, run, world.script.killed_after >= 0 ? 2 : 1);
  }
}

TEST_CASE("coordinator with a store: when too much waits for the disk, nothing more is taken, and then it goes on") {
  World world;
  world.restart();
  world.submit("run");
  world.run_until([&] { return world.acknowledged() >= 4; });
  auto full = std::make_unique<test::FullDisk>();
  for (std::size_t number = 0; number <= storage::EventStore::kQueueMax; ++number)
    world.shell().request_stop("other", {});
  CHECK(world.shell().is_held());
  world.submit("refused");
  CHECK(world.lines("refused", "events.jsonl") == 0);
  // What was committed before the disk was full is acknowledged by then.
  world.run_until([&] { return !world.troubles.empty(); });
  world.deliver();
  const auto acknowledged = world.acknowledged();
  world.run_until([&] { return world.troubles.size() >= 2; });
  CHECK(world.acknowledged() == acknowledged);
  full.reset();
  world.run_until([&] { return !world.shell().is_held(); });
  world.connect();  // As agents dial again.
  world.run_until_idle();
  check_whole(world, "run");
  REQUIRE(world.accepted.size() == 2);
  CHECK(world.accepted[1] == "refused: the coordinator cannot write its state at the moment: try again later");
}

TEST_CASE(
    "who may touch a run's files is remembered as long as they are there, over all lives and whatever is forgotten") {
  World world(3);
  world.finished_max = 1;
  world.restart();
  for (const char* id : {"run-1", "run-2", "run-3"}) {
    world.submit(id);
    world.run_until_idle();
  }
  const auto check = [&] {
    for (const char* id : {"run-1", "run-2", "run-3"}) {
      std::set<NodeId> had;
      for (const auto& event : lines_of(world.folder.run(id) + "/events.jsonl"))
        if (event.at("event") == "worker_started") had.insert(event.at("node").get<std::string>());
      CHECK(!had.empty());
      CHECK(had.size() < 3);
      CHECK(world.shell().nodes_of(id) == had);
      for (const char* node : {"node0", "node1", "node2"})
        CHECK(world.shell().may_touch(id, node) == had.contains(node));
      CHECK_FALSE(world.shell().may_touch(id, "stranger"));
    }
    CHECK_FALSE(world.shell().may_touch("nobody's", "node0"));
  };
  check();
  for (int life = 0; life < 3; ++life) {
    world.restart();
    check();
  }
}

TEST_CASE("retention: when many runs have ended the next look does not wait for its time") {
  World world;
  world.restart();
  for (const char* id : {"one", "two", "three"}) world.submit(id);
  world.run_until_idle();
  storage::FileThread files(world.io());
  const auto is_over = [&](const RunId& run) { return world.shell().is_over(run); };
  coordinator::RunRetention retention(world.io(), world.shell(), files, world.folder.file("runs"), is_over,
                                      [](const std::string&) {});
  retention.retention = {1, {}, {}};
  for (std::size_t ended = 1; ended < coordinator::RunRetention::kEndedMax; ++ended) retention.note_ended("one");
  world.deliver();
  CHECK(retention.known().empty());
  retention.note_ended("two");
  world.run_until([&] { return world.shell().runs().size() == 1; });
  CHECK(world.shell().runs().front().id == "three");
  CHECK(retention.bytes_of("") > 0);
  CHECK(retention.bytes_of("") == retention.known().at("three").bytes);
  CHECK(retention.bytes_of("somebody") == 0);
  retention.stop();
}

TEST_CASE("retention: trials that have ended make no look come sooner, however many there are") {
  World world;
  world.restart();
  world.submit_experiment("x");
  world.run_until_idle();
  storage::FileThread files(world.io());
  const auto is_over = [&](const RunId& run) { return world.shell().is_over(run); };
  coordinator::RunRetention retention(world.io(), world.shell(), files, world.folder.file("runs"), is_over,
                                      [](const std::string&) {});
  for (std::size_t ended = 0; ended < coordinator::RunRetention::kEndedMax; ++ended) retention.note_ended("x.0000");
  for (std::size_t ended = 1; ended < coordinator::RunRetention::kEndedMax; ++ended) retention.note_ended("x");
  world.deliver();
  CHECK(retention.known().empty());
  retention.note_ended("x");
  world.run_until([&] { return retention.known().contains("x"); });
  retention.stop();
}

TEST_CASE(
    "coordinator with a store: a trial that has ended stays so while its experiment, which is ending, gets more") {
  World world(2, 1);
  world.script.epochs = 3000;  // They do not end by themselves.
  world.restart();
  world.submit_experiment("x");
  world.run_until([&] { return world.lines("x", "trials/0000/metrics.jsonl") > 0; });
  world.run_until([&] { return world.lines("x", "trials/0001/metrics.jsonl") > 0; });
  world.unplug(1);
  core::StopRequest stop;
  stop.at_once = true;
  world.shell().request_stop("x", stop);
  const auto has_ended = [&](const char* trial) { return world.shell().is_over(trial); };
  world.run_until([&] { return has_ended("x.0000") || has_ended("x.0001"); });
  REQUIRE_FALSE(world.shell().is_over("x"));
  REQUIRE(world.shell().resume_experiment("x", 3).ok());
  world.plug(1);
  world.run_until([&] { return world.shell().is_over("x"); });
  for (const char* run : {"x.0000", "x.0001"}) CHECK(has_ended(run));
}

TEST_CASE("coordinator with a store: that an experiment goes on is told when it is committed") {
  World world(2, 1);
  world.restart();
  world.submit_experiment("x");
  world.run_until([&] { return world.shell().is_over("x"); });
  world.run_until_idle();
  bool is_told = false;
  REQUIRE(world.shell().resume_experiment("x", 3).ok());
  world.shell().when_committed([&is_told] { is_told = true; });
  CHECK_FALSE(is_told);
  world.run_until([&is_told] { return is_told; });
  world.run_until([&] { return world.shell().is_over("x.0002") && world.shell().is_over("x"); });
  world.run_until_idle();
}

TEST_CASE("coordinator with a store: killed while an experiment is made to go on, it goes on, or has ended as before") {
  World world(2, 1);
  world.restart();
  world.submit_experiment("x");
  world.run_until([&] { return world.shell().is_over("x"); });
  world.run_until_idle();
  world.kill();
  bool has_event = false;
  SECTION("its row alone was stored") {}
  SECTION("the event was, too, and no row of the new trial") {
    has_event = true;
  }
  {
    auto store = std::move(storage::EventStore::open(world.folder.state())).value();
    TimePoint last = store->tables().load_cut().value().at;
    REQUIRE(store->load([&last](TimePoint at, core::CoordinatorEvent&&) { last = at; }).ok());
    std::vector<storage::StoredRun> rows = store->load_runs().value();
    const auto row =
        std::find_if(rows.begin(), rows.end(), [](const storage::StoredRun& one) { return one.id == "x"; });
    REQUIRE(row != rows.end());
    row->state = row->summary = "";
    row->finished_s = 0;
    REQUIRE(store->start({}).ok());
    (void)store->put(*row);
    if (has_event) (void)store->append(last, core::coordinator_event::ExperimentResumed{"x", 3});
  }
  world.restart();
  CHECK(world.shell().is_over("x.0000"));
  if (has_event) {
    CHECK_FALSE(world.shell().is_over("x"));
  } else {
    world.run_until_idle();
    REQUIRE(world.shell().is_over("x"));
    CHECK(world.shell().run("x")->state == "succeeded");
    REQUIRE(world.shell().resume_experiment("x", 3).ok());
  }
  world.run_until([&] { return world.shell().is_over("x.0002") && world.shell().is_over("x"); });
  world.run_until_idle();
  for (const char* trial : {"x.0000", "x.0001", "x.0002", "x"}) CHECK(world.shell().run(trial)->state == "succeeded");
  CHECK(world.lines("x", "trials/0002/metrics.jsonl") == world.lines("x", "trials/0000/metrics.jsonl"));
  std::map<std::string, int> count;
  for (const auto& event : lines_of(world.folder.run("x") + "/events.jsonl")) ++count[event.at("event")];
  CHECK(count["experiment_resumed"] == 1);
  CHECK(count["trial_ended"] == 3);
  CHECK(count["run_finished"] == 2);
  CHECK(std::filesystem::exists(world.folder.run("x") + "/summary.json"));
  CHECK(world.warnings.empty());
}

// Runs that have ended, and whose files are still on their way from their nodes when the coordinator is started anew:
// their ends are told again until they are settled, and never after that.

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "store_world.hpp"

using namespace sgd;
using namespace std::chrono_literals;
using test::World;

namespace {

/// The row as the store has it, while nobody else does.
storage::StoredRun stored_row(World& world, const RunId& id) {
  world.kill();
  auto store = storage::EventStore::open(world.folder.state());
  REQUIRE(store.ok());
  auto rows = store.value()->load_runs();
  REQUIRE(rows.ok());
  for (storage::StoredRun& row : rows.value())
    if (row.id == id) return row;
  FAIL("no row of " << id);
  return {};
}

void end(World& world, const RunId& id, int times = 1) {
  world.run_until([&] { return world.ended[id] >= times; });
  world.deliver();
  CHECK(world.ended[id] == times);
}

}  // namespace

TEST_CASE("unsettled runs: an end is told again by each start until it is settled, and then by none") {
  World world;
  world.is_settled_later = true;
  world.restart();
  world.submit("run");
  end(world, "run");
  const auto lines = world.lines("run", "events.jsonl");
  for (int life = 2; life <= 4; ++life) {
    CHECK_FALSE(stored_row(world, "run").is_finished());
    world.restart();
    CHECK_FALSE(world.shell().is_over("run"));
    end(world, "run", life);
    CHECK(world.shell().is_over("run"));
    CHECK_FALSE(world.shell().is_idle());
  }
  world.shell().settle("run");
  world.run_until_idle();
  CHECK(stored_row(world, "run").is_finished());
  world.restart();
  CHECK(world.shell().is_over("run"));
  world.shell().settle("run");  // Once more, and of what nobody knows: nothing happens.
  world.shell().settle("nobody's");
  world.run_until_idle();
  CHECK(world.ended["run"] == 4);
  CHECK(world.lines("run", "events.jsonl") == lines);
  CHECK(world.told["run"] == static_cast<int>(lines + world.lines("run", "metrics.jsonl")));
  CHECK(world.warnings.empty());
}

TEST_CASE("unsettled runs: a result that is lost after a restart changes the end that the row tells") {
  World world;
  world.is_settled_later = true;
  world.restart();
  world.submit("run");
  end(world, "run");
  world.restart();
  end(world, "run", 2);
  core::RunOutcome outcome;
  outcome.state = "failed";
  outcome.exit_code = 1;
  outcome.error = "what it leaves could not be kept";
  world.shell().change_outcome("run", outcome);
  world.shell().settle("run");
  world.run_until_idle();
  const storage::StoredRun row = stored_row(world, "run");
  CHECK(row.is_finished());
  CHECK(row.state == "failed");
  world.restart();
  world.run_until_idle();
  CHECK(world.ended["run"] == 2);
  CHECK(world.shell().run("run")->state == "failed");
}

TEST_CASE("unsettled runs: no cut of the log goes beyond an end that is not settled") {
  World world;
  world.is_settled_later = true;
  world.cut_after = {10, 30, 1 << 20};
  world.finished_max = 1;
  world.restart();
  world.submit("first");
  end(world, "first");
  for (int number = 0; number < 4; ++number) {
    const RunId id = fmt::format("other-{}", number);
    world.submit(id);
    end(world, id);
    world.shell().settle(id);
  }
  CHECK(world.shell().log_length() > 30);
  world.restart();
  end(world, "first", 2);
  CHECK(world.shell().run("first")->state == "succeeded");
  world.shell().settle("first");
  world.run_until([&] { return world.shell().log_length() <= 10; });
  world.run_until_idle();
  world.restart();
  world.run_until_idle();
  CHECK(world.ended["first"] == 2);
  CHECK(world.shell().run("first")->state == "succeeded");
  CHECK(world.troubles.empty());
}

TEST_CASE("unsettled runs: one that is settled by who is told of its end is filed at once") {
  World world;
  world.is_settled_later = true;
  world.restart();
  world.submit("run");
  world.on_ended = [&world](const RunId& id) { world.shell().settle(id); };
  end(world, "run");
  world.run_until_idle();
  CHECK(stored_row(world, "run").is_finished());
}

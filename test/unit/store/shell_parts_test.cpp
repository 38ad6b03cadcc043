// What a coordinator with a store is made of, piece by piece.

#include <algorithm>
#include <catch2/catch.hpp>

#include "full_disk.hpp"
#include "launcher/coordinator/barrier_queue.hpp"
#include "launcher/coordinator/core_clock.hpp"
#include "launcher/coordinator/run_records.hpp"
#include "launcher/storage/line_file.hpp"
#include "state_folder.hpp"

using namespace sgd;
using namespace std::chrono_literals;
using test::lines_of;

TEST_CASE("core clock: time never goes back, whatever the machine's clock says", "[49]") {
  const TimePoint last{1000s};
  const auto core_now = [&](TimePoint machine, std::optional<Duration> former) {
    return machine + coordinator::clock_offset(machine, last, former);
  };
  CHECK(core_now(TimePoint{10s}, {}) == last);                // Another boot, up for less.
  CHECK(core_now(TimePoint{9000s}, {}) == last);              // Another boot, up for longer: no time has passed.
  CHECK(core_now(TimePoint{1200s}, 0s) == TimePoint{1200s});  // The same boot: 200 s without a coordinator.
  CHECK(core_now(TimePoint{300s}, 800s) == TimePoint{1100s});
  CHECK(core_now(TimePoint{100s}, 800s) == last);  // Never before the last event.
}

TEST_CASE("core clock: it runs with the machine's, and timers are set by that") {
  const coordinator::CoreClock plain;
  const coordinator::CoreClock ahead(1h);
  const TimePoint before = plain.now();
  const TimePoint shifted = ahead.now();
  CHECK(shifted - before >= 1h);
  CHECK(shifted <= plain.now() + 1h);
  CHECK(ahead.machine_time(shifted) == shifted - 1h);
  CHECK(plain.machine_time(before) == before);
}

TEST_CASE("barrier queue: commands wait for what was stored before them, in their order") {
  coordinator::BarrierQueue queue;
  std::string done;
  const auto push = [&](char name) { queue.push([&done, name] { done += name; }); };
  const auto run = [&] {
    while (const auto item = queue.take()) std::get<std::function<void()>> (*item)();
    return done;
  };
  push('a');
  CHECK(run() == "a");  // Nothing was stored.
  queue.stored(1);
  push('b');
  push('c');
  queue.stored(2);
  queue.stored(3);
  push('d');
  CHECK(run() == "a");
  queue.committed(1);
  CHECK(run() == "abc");
  queue.committed(2);
  CHECK(run() == "abc");
  CHECK_FALSE(queue.empty());
  push('e');
  queue.committed(3);
  CHECK(run() == "abcde");
  CHECK(queue.empty());
}

TEST_CASE("line file: a line is written whole or not at all, and counted") {
  const test::StateFolder folder;
  std::filesystem::create_directory(folder.state());
  const std::string path = folder.file("lines");
  {
    auto file = storage::LineFile::open(path);
    REQUIRE(file.ok());
    REQUIRE(file.value().append("{\"a\":1}\n").ok());
    const std::string large = "{\"text\":\"" + std::string(2000, 'x') + "\"}\n";
    {
      const test::FullDisk full(1024);
      const Status written = file.value().append(large);
      REQUIRE_FALSE(written.ok());
      CHECK_THAT(written.error().message, Catch::StartsWith("cannot write " + path));
    }
    CHECK(std::filesystem::file_size(path) == 8);
    CHECK(file.value().lines() == 1);
    REQUIRE(file.value().append(large).ok());
    CHECK(file.value().lines() == 2);
  }
  CHECK(lines_of(path).size() == 2);
  std::ofstream(path, std::ios::app) << "no JSON\n{\"b\":2}\n{\"c\":";
  CHECK(storage::LineFile::open(path).value().lines() == 4);
  CHECK(storage::LineFile::open(path, 3).value().lines() == 4);  // The first three stay, whatever they are.
  CHECK(storage::LineFile::open(path, 0).value().lines() == 2);
  CHECK(lines_of(path).size() == 2);
}

TEST_CASE("run records: a full disk holds lines back, and none is lost") {
  const test::StateFolder folder;
  std::vector<std::string> warnings;
  int told = 0;
  coordinator::RunObserver observer;
  observer.on_metrics = [&](const nlohmann::ordered_json&) { ++told; };
  observer.on_warning = [&](const std::string& text) { warnings.push_back(text); };
  const bool has_store = GENERATE(true, false);
  const std::string run_dir = folder.run("run");
  auto directory = storage::RunDirectory::create({"run", run_dir}, {});
  REQUIRE(directory.ok());
  coordinator::RunRecords records(std::move(directory).value(), observer, has_store);
  const auto add = [&](int number) { records.metrics({{"number", number}, {"text", std::string(100, 'x')}}); };
  for (int number = 0; number < 30; ++number) add(number);
  const std::string path = run_dir + "/metrics.jsonl";
  std::vector<int> written;
  {
    const test::FullDisk full(std::filesystem::file_size(path) + 60);
    for (int number = 30; number < 40; ++number) add(number);
    CHECK(records.waits() == has_store);
    REQUIRE(warnings.size() == 1);
    CHECK(warnings[0].find(has_store ? "as soon as that is possible" : "the run goes on without") != std::string::npos);
    core::RunOutcome outcome;
    outcome.state = "succeeded";
    records.finish(outcome);
    CHECK(records.is_complete() != has_store);
    CHECK(std::filesystem::exists(run_dir + "/summary.json") != has_store);
  }
  records.retry();
  CHECK_FALSE(records.waits());
  CHECK(records.is_complete());
  for (const auto& line : lines_of(path)) written.push_back(line.at("number"));
  CHECK(written.size() == (has_store ? 40U : 30U));
  CHECK(told == 40);
  CHECK(std::is_sorted(written.begin(), written.end()));
  CHECK(std::filesystem::exists(run_dir + "/summary.json"));
}

TEST_CASE("run records: after a replay only what is missing is written and told") {
  const test::StateFolder folder;
  int told = 0;
  coordinator::RunObserver observer;
  observer.on_event = [&](const nlohmann::ordered_json&) { ++told; };
  const std::string run_dir = folder.run("run");
  {
    auto directory = storage::RunDirectory::create({"run", run_dir}, {});
    for (int number = 0; number < 3; ++number)
      REQUIRE(directory.value()->append_event({{"event", "e"}, {"number", number}}).ok());
  }
  auto directory = storage::RunDirectory::adopt({"run", run_dir}, {}, {1, 0});  // The first was there at the beginning.
  REQUIRE(directory.ok());
  CHECK(directory.value()->lines().events == 3);
  coordinator::RunRecords records(std::move(directory).value(), observer, true);
  records.skip({2, 0});
  for (int number = 1; number < 6; ++number) records.event({{"event", "e"}, {"number", number}});
  CHECK(records.end_skipping().events == 0);
  const auto lines = lines_of(run_dir + "/events.jsonl");
  REQUIRE(lines.size() == 6);
  for (int number = 0; number < 6; ++number) CHECK(lines[static_cast<std::size_t>(number)].at("number") == number);
  CHECK(told == 3);
}

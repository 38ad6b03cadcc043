// What a coordinator with a store is made of, piece by piece.

#include <algorithm>
#include <deque>
#include <mutex>

#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include "full_disk.hpp"
#include "launcher/coordinator/barrier_queue.hpp"
#include "launcher/coordinator/core_clock.hpp"
#include "launcher/coordinator/run_records.hpp"
#include "launcher/process/clock.hpp"
#include "launcher/storage/file_thread.hpp"
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

TEST_CASE("barrier queue: an event is done when all that follows from it was taken") {
  coordinator::BarrierQueue queue;
  const auto push = [&] { queue.push([] {}); };
  queue.stored(1);
  push();
  push();
  queue.stored(2);
  push();
  CHECK_FALSE(queue.is_ready());
  queue.committed(2);
  CHECK(queue.done_up_to() == 0);
  (void)queue.take();
  CHECK(queue.done_up_to() == 0);
  (void)queue.take();
  CHECK(queue.done_up_to() == 1);
  (void)queue.take();
  CHECK(queue.done_up_to() == 2);
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

TEST_CASE("run records: a disk that hangs is said, and everything is written when it answers") {
  const test::StateFolder folder;
  std::vector<std::string> warnings;
  int told = 0;
  bool is_over = false;
  coordinator::RunObserver observer;
  observer.on_event = [&](const nlohmann::ordered_json&) { ++told; };
  observer.on_warning = [&](const std::string& text) { warnings.push_back(text); };
  observer.on_finished = [&](const core::RunOutcome&) { is_over = true; };
  const std::string run_dir = folder.run("run");
  auto directory = storage::RunDirectory::create({"run", run_dir}, {});
  REQUIRE(directory.ok());
  std::deque<std::pair<std::function<void()>, std::function<void()>>> orders;
  coordinator::RunRecords records(std::move(directory).value(), observer, true,
                                  [&](std::function<void()> work, std::function<void()> done) {
                                    orders.emplace_back(std::move(work), std::move(done));
                                  });
  const auto answer = [&] {
    const auto order = std::move(orders.front());
    orders.pop_front();
    order.first();
    order.second();
  };
  records.event({{"event", "first"}}, 7);
  for (int number = 0; number < 100; ++number) records.event({{"event", "e"}}, 8);
  records.finish({}, 9);
  CHECK(orders.size() == 1);  // What comes meanwhile waits for the answer, and then goes together.
  CHECK(told == 0);
  CHECK(records.is_ending());
  CHECK(records.written_up_to() == 7U);
  const TimePoint late = process::monotonic_now() + 6s;
  CHECK(records.unanswered_for(late) >= 6s);
  records.watch(late);
  records.watch(late);
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], Catch::StartsWith("the disk has not answered for 5s"));
  CHECK_FALSE(records.waits());
  answer();
  CHECK(told == 1);
  CHECK(warnings.back() == "the disk answers again");
  CHECK(records.written_up_to() == 8U);
  REQUIRE(orders.size() == 1);
  answer();
  CHECK(told == 101);
  CHECK(is_over);
  CHECK(records.is_complete());
  CHECK_FALSE(records.written_up_to());
  CHECK(lines_of(run_dir + "/events.jsonl").size() == 101);
}

TEST_CASE("file thread: who asks within a limit is answered by then, and what is made too late is handed over") {
  boost::asio::io_context io;
  std::mutex disk;
  std::vector<std::string> said;
  storage::FileThread files(io);
  std::unique_lock hanging(disk);
  const auto work = [&disk]() -> Result<int> {
    const std::lock_guard lock(disk);
    return 7;
  };
  const auto done = [&said](const Result<int>& value) {
    said.push_back(value ? std::to_string(value.value()) : value.error().message);
  };
  files.ask_within(10ms, work, done,
                   [&said](const Result<int>& late) { said.push_back("late " + std::to_string(late.value())); });
  const auto run_until = [&](std::size_t count) {
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    while (said.size() < count && std::chrono::steady_clock::now() < deadline) {
      io.restart();
      io.run_one_for(10ms);
    }
    REQUIRE(said.size() == count);
  };
  run_until(1);
  CHECK_THAT(said.back(), Catch::StartsWith("the disk has not answered for 10ms"));
  hanging.unlock();
  run_until(2);
  CHECK(said.back() == "late 7");
  files.ask_within(60s, work, done);
  run_until(3);
  CHECK(said.back() == "7");
  io.restart();
  io.run_for(20s);
  CHECK(io.stopped());  // No timer is left.
}

TEST_CASE("run records: what waits for a disk that never answers has a limit") {
  const test::StateFolder folder;
  std::vector<std::string> warnings;
  std::size_t told = 0;
  coordinator::RunObserver observer;
  observer.on_event = [&](const nlohmann::ordered_json&) { ++told; };
  observer.on_warning = [&](const std::string& text) { warnings.push_back(text); };
  auto directory = storage::RunDirectory::create({"run", folder.run("run")}, {});
  REQUIRE(directory.ok());
  coordinator::RunRecords records(std::move(directory).value(), observer, true,
                                  [](const std::function<void()>&, const std::function<void()>&) {});
  for (std::size_t number = 0; number < coordinator::RunRecords::kWaitingMax + 3; ++number)
    records.event({{"event", "e"}});
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], Catch::StartsWith("too many lines wait to be written"));
  CHECK(records.leaves_out());
  CHECK(told == coordinator::RunRecords::kWaitingMax + 2);  // All but the one that the disk has.
}

TEST_CASE("file thread: when too much waits for it, one more question is refused") {
  boost::asio::io_context io;
  std::mutex disk;
  storage::FileThread files(io);
  files.asked_max = 2;  // In place of kAskedMax.
  std::unique_lock hanging(disk);
  for (int number = 0; number < 3; ++number) files.run([&disk] { const std::lock_guard lock(disk); }, [] {});
  std::string said;
  const auto work = []() -> Status { return {}; };
  files.ask_within(60s, work, [&said](const Status& status) { said = status ? "done" : status.error().message; });
  CHECK_THAT(said, Catch::Contains("2 requests wait already"));
  hanging.unlock();
  io.run();
}

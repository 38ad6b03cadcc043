// The store on a real disk: what is there after a close, a cut-off tail, damage; and what it does when it cannot write.

#include "launcher/storage/event_store.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <map>
#include <optional>
#include <semaphore>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "full_disk.hpp"
#include "state_folder.hpp"
#include "store_listener.hpp"

using namespace sgd;
using namespace std::chrono_literals;
using storage::EventStore;
using test::StateFolder;
using test::StoreListener;

namespace {

core::CoordinatorEvent closed(int number) {
  return core::coordinator_event::AgentClosed{fmt::format("node{}", number)};
}
TimePoint at(int number) {
  return TimePoint(Duration(number * 1000));
}

/// The numbers of the events in the store, which is closed.
std::vector<int> stored(const StateFolder& folder) {
  auto store = EventStore::open(folder.state());
  REQUIRE(store.ok());
  std::vector<int> numbers;
  const Status loaded = store.value()->load([&](TimePoint when, core::CoordinatorEvent&& event) {
    const auto& node = std::get<core::coordinator_event::AgentClosed>(event).node;
    numbers.push_back(std::stoi(node.substr(4)));
    CHECK(when == at(numbers.back()));
  });
  REQUIRE(loaded.ok());
  return numbers;
}

std::vector<int> first(int count) {
  std::vector<int> numbers;
  for (int number = 1; number <= count; ++number) numbers.push_back(number);
  return numbers;
}

std::string refusal(const StateFolder& folder) {
  auto store = EventStore::open(folder.state());
  if (!store) return store.error().message;
  const Status loaded = store.value()->load([](TimePoint, core::CoordinatorEvent&&) {});
  return loaded ? "" : loaded.error().message;
}

void execute(const StateFolder& folder, const std::string& sql) {
  auto database = storage::Database::open(folder.file("coordinator.db"));
  REQUIRE(database.ok());
  REQUIRE(database.value()->execute(sql).ok());
}

void fill(const StateFolder& folder, int count) {
  StoreListener listener;
  auto store = EventStore::open(folder.state());
  REQUIRE(store.ok());
  REQUIRE(store.value()->start(listener.handlers()));
  for (int number = 1; number <= count; ++number)
    listener.wait_committed(store.value()->append(at(number), closed(number)));
}

}  // namespace

TEST_CASE("event store: what was appended comes back in order, in the next process and the one after it") {
  const StateFolder folder;
  for (int life = 0; life < 3; ++life) {
    CHECK(stored(folder) == first(life * 100));
    StoreListener listener;
    auto store = EventStore::open(folder.state());
    REQUIRE(store.ok());
    REQUIRE(store.value()->load([](TimePoint, core::CoordinatorEvent&&) {}).ok());
    REQUIRE(store.value()->start(listener.handlers()));
    for (int number = life * 100 + 1; number <= life * 100 + 99; ++number)
      (void)store.value()->append(at(number), closed(number));
    (void)store.value()->append(at(life * 100 + 100), closed(life * 100 + 100));  // The end commits it.
    CHECK(store.value()->events() == static_cast<std::uint64_t>(life * 100 + 100));
  }
  CHECK(stored(folder) == first(300));
}

TEST_CASE("event store: commits are told in the order of the tickets, several at once") {
  const StateFolder folder;
  StoreListener listener;
  auto store = EventStore::open(folder.state());
  REQUIRE(store.ok());
  REQUIRE(store.value()->start(listener.handlers()));
  for (int number = 1; number <= 2000; ++number)
    REQUIRE(store.value()->append(at(number), closed(number)) == static_cast<EventStore::Ticket>(number));
  listener.wait_committed(2000);
  CHECK(listener.troubles().empty());
}

TEST_CASE("event store: one identity for ever, and nobody else may read it") {
  const StateFolder folder;
  std::string id;
  for (int life = 0; life < 2; ++life) {
    auto store = EventStore::open(folder.state());
    REQUIRE(store.ok());
    if (life == 0) id = store.value()->tables().cluster_id();
    CHECK(store.value()->tables().cluster_id() == id);
    CHECK(id.size() == 32);
  }
  const StateFolder other;
  CHECK(EventStore::open(other.state()).value()->tables().cluster_id() != id);
  for (const char* name : {"", "coordinator.db"}) {
    struct stat info {};
    REQUIRE(::stat(folder.file(name).c_str(), &info) == 0);
    CHECK((info.st_mode & 077) == 0);
  }
}

TEST_CASE("event store: a second coordinator on the same folder is refused, by the pid of the first") {
  const StateFolder folder;
  auto store = EventStore::open(folder.state());
  REQUIRE(store.ok());
  CHECK(refusal(folder) ==
        fmt::format("state folder {} is in use by another coordinator (pid {}): stop that one first, or "
                    "name another folder",
                    folder.state(), ::getpid()));
  store.value().reset();
  CHECK(refusal(folder).empty());
}

TEST_CASE("event store: of a log whose tail is cut off the whole commits stay") {
  const StateFolder folder;
  StoreListener listener;
  auto store = EventStore::open(folder.state());
  REQUIRE(store.ok());
  REQUIRE(store.value()->start(listener.handlers()));
  for (int number = 1; number <= 50; ++number)
    listener.wait_committed(store.value()->append(at(number), closed(number)));
  const auto bytes = std::filesystem::file_size(folder.file("coordinator.db-wal"));
  std::size_t fewest = 50;
  for (const std::uintmax_t left : {bytes, bytes - 1, bytes - 5000, bytes / 2}) {
    // As a power failure leaves it: the files while they are in use, the newest one shorter.
    const StateFolder torn;
    std::filesystem::create_directory(torn.state());
    for (const char* name : {"coordinator.db", "coordinator.db-wal"})
      std::filesystem::copy_file(folder.file(name), torn.file(name));
    std::filesystem::resize_file(torn.file("coordinator.db-wal"), left);
    const std::vector<int> numbers = stored(torn);
    CHECK(numbers == first(static_cast<int>(numbers.size())));
    CHECK((left == bytes) == (numbers.size() == 50));
    CHECK(numbers.size() <= fewest);
    fewest = numbers.size();
    CHECK(refusal(torn).empty());  // Once more: the first one has written to it.
  }
  CHECK(fewest > 0);
}

TEST_CASE("event store: what is no store, or of another version, or damaged, is said with the way out") {
  const StateFolder folder;
  fill(folder, 20);
  SECTION("no database") {
    std::ofstream(folder.file("coordinator.db"), std::ios::trunc) << std::string(10'000, 'x');
    CHECK(refusal(folder).starts_with("damaged store: " + folder.file("coordinator.db") +
                                      ": file is not a database. Move"));
  }
  SECTION("somebody else's") {
    execute(folder, "PRAGMA application_id=1");
    CHECK(refusal(folder) == folder.file("coordinator.db") + " is no store of sgd-launch: name another state folder");
  }
  SECTION("a newer one") {
    execute(folder, "PRAGMA user_version=3");
    CHECK(refusal(folder) == folder.file("coordinator.db") +
                                 " has schema version 3, and this sgd-launch knows 2: run the one that wrote it");
  }
  SECTION("a newer event") {
    execute(folder, "UPDATE events SET event='{\"v\":2,\"type\":\"tick\"}' WHERE id=7");
    CHECK(refusal(folder) == folder.file("coordinator.db") + ", event 7: version 2 of events; this sgd-launch knows 1");
  }
  SECTION("an event is missing") {
    execute(folder, "DELETE FROM events WHERE id=7");
    CHECK(refusal(folder).find("is damaged: after event 6 comes event 8. Move coordinator.db") != std::string::npos);
  }
  SECTION("a page is overwritten") {
    execute(folder, "PRAGMA wal_checkpoint(TRUNCATE)");
    std::fstream file(folder.file("coordinator.db"), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096 + 8);
    file << std::string(static_cast<std::size_t>(std::filesystem::file_size(folder.file("coordinator.db"))) - 4104,
                        '\x5a');
    file.close();
    const std::string said = refusal(folder);
    INFO(said);
    CHECK(said.find("damaged") != std::string::npos);
    CHECK(said.find("sgd-launch resume") != std::string::npos);
  }
}

TEST_CASE("event store: while nothing can be written nothing is committed, and it goes on by itself") {
  const StateFolder folder;
  StoreListener listener;
  auto opened = EventStore::open(folder.state());
  REQUIRE(opened.ok());
  EventStore& store = *opened.value();
  REQUIRE(store.start(listener.handlers()));
  listener.wait_committed(store.append(at(1), closed(1)));
  auto full = std::make_unique<test::FullDisk>();
  (void)store.append(at(2), closed(2));
  listener.wait_trouble();
  const auto last = store.append(at(3), closed(3));
  CHECK(listener.committed() == 1);
  CHECK(listener.recoveries() == 0);
  full.reset();
  listener.wait_committed(last);
  CHECK(listener.recoveries() == 1);
  const auto troubles = listener.troubles();
  CHECK(troubles.size() == 1);  // Said once, tried often.
  CHECK_THAT(troubles.front(), Catch::StartsWith(folder.file("coordinator.db") + ": "));
  opened.value().reset();
  CHECK(stored(folder) == first(3));
}

TEST_CASE("event store: room that comes before the first commit ends the trouble of the start, too") {
  const StateFolder folder;
  StoreListener listener;
  auto opened = EventStore::open(folder.state());
  REQUIRE(opened.ok());
  EventStore& store = *opened.value();
  {
    const test::FullDisk full;
    REQUIRE_FALSE(store.tables().keep_clock_offset(Duration(5)).ok());
  }
  REQUIRE(store.start(listener.handlers()));
  listener.wait_committed(store.append(at(1), closed(1)));
  CHECK(listener.troubles().empty());
  CHECK(listener.recoveries() == 1);
  listener.wait_committed(store.append(at(2), closed(2)));
  CHECK(listener.recoveries() == 1);
}

TEST_CASE("event store: it takes what is appended even when it is full, and says so") {
  const StateFolder folder;
  StoreListener listener;
  auto opened = EventStore::open(folder.state());
  REQUIRE(opened.ok());
  EventStore& store = *opened.value();
  const int count = static_cast<int>(EventStore::kQueueMax);
  for (int number = 1; number < count; ++number) (void)store.append(at(number), closed(number));
  CHECK_FALSE(store.is_full());
  CHECK_FALSE(store.has_room());
  (void)store.append(at(count), closed(count));
  CHECK(store.is_full());
  const auto last = store.append(at(count + 1), closed(count + 1));
  REQUIRE(store.start(listener.handlers()));  // It was not written before.
  listener.wait_committed(last);
  CHECK_FALSE(store.is_full());
  CHECK(store.has_room());
  opened.value().reset();
  CHECK(stored(folder).size() == static_cast<std::size_t>(count + 1));
}

TEST_CASE("event store: a cut leaves the rows of runs, and the state in place of all events") {
  const StateFolder folder;
  {
    StoreListener listener;
    auto opened = EventStore::open(folder.state());
    EventStore& store = *opened.value();
    REQUIRE(store.start(listener.handlers()));
    for (int number = 1; number <= 5000; ++number) (void)store.append(at(number), closed(number));
    storage::StoredRun run{"run", "name", "owner", "request", "/dir", 3, "failed", 7, 10.5, 20.5, 9.25, {1, 2}, "{}"};
    store.file(run);
    listener.wait_committed(store.put({"live", "name", "", "", "/live", 1, "", 0, 11.5, 0, 0, {}, ""}));
    const auto before = std::filesystem::file_size(folder.file("coordinator.db-wal"));
    CHECK(before > 100'000);
    store.compact(4000, {});
    const auto cut = listener.wait_cut();
    REQUIRE(cut.ok());
    CHECK(cut.value()->event == 4000);
    CHECK(cut.value()->at == at(4000));
    store.begin_behind(*cut.value());
    CHECK(store.events() == 1000);
    store.compact(5000, {});
    store.begin_behind(*listener.wait_cut().value());
    CHECK(store.events() == 0);
    listener.wait_committed(store.append(at(10), closed(10)));
    CHECK(store.events() == 1);
    store.compact(5000, {});
    CHECK_FALSE(listener.wait_cut().ok());
    // What was cut goes little by little, in the commits after it.
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    while (std::filesystem::file_size(folder.file("coordinator.db")) > 100'000) {
      REQUIRE(std::chrono::steady_clock::now() < deadline);
      listener.wait_committed(store.put({"live", "name", "", "", "/live", 1, "", 0, 11.5, 0, 0, {}, ""}));
    }
  }
  CHECK(stored(folder) == std::vector<int>{10});
  auto store = EventStore::open(folder.state());
  const auto runs = store.value()->load_runs();
  REQUIRE(runs.ok());
  REQUIRE(runs.value().size() == 2);
  const storage::StoredRun& run = runs.value()[0];
  CHECK(run.id == "run");
  CHECK(run.name == "name");
  CHECK(run.owner == "owner");
  CHECK(run.request_id == "request");
  CHECK(run.run_dir == "/dir");
  CHECK(run.num_workers == 3);
  CHECK(run.state == "failed");
  CHECK(run.exit_code == 7);
  CHECK(run.submitted_s == 10.5);
  CHECK(run.finished_s == 20.5);
  CHECK(run.wall_s == 9.25);
  CHECK(run.lines_before.events == 1);
  CHECK(run.lines_before.metrics == 2);
  CHECK(run.summary == "{}");
  CHECK_FALSE(runs.value()[1].is_finished());
}

TEST_CASE(
    "event store: the files of an ended run hold up its row and a cut, and no event; a newer row takes its place") {
  const StateFolder folder;
  const auto row = [](const char* id, double finished_s) {
    return storage::StoredRun{id, "name", "", "", std::string("/") + id, 1, "", 0, 1.5, finished_s, 0, {1, 1}, ""};
  };
  StoreListener listener;
  std::promise<void> on_disk;
  std::promise<void> on_its_way;
  std::vector<std::vector<std::string>> synced;
  EventStore::Handlers handlers = listener.handlers();
  handlers.sync = [&, disk = on_disk.get_future().share()](const std::vector<std::string>& run_dirs) {
    if (synced.empty()) on_its_way.set_value();
    synced.push_back(run_dirs);
    disk.wait();
  };
  auto opened = EventStore::open(folder.state());
  EventStore& store = *opened.value();
  REQUIRE(store.start(std::move(handlers)));
  (void)store.append(at(1), closed(1));
  for (const char* id : {"again", "ended", "gone"}) listener.wait_committed(store.put(row(id, 0)));
  store.file(row("again", 2.5));
  on_its_way.get_future().wait();
  for (const char* id : {"ended", "gone"}) store.file(row(id, 2.5));
  store.compact(1, {});
  listener.wait_committed(store.append(at(2), closed(2)));
  listener.wait_committed(store.put(row("again", 0)));  // It lives once more.
  listener.wait_committed(store.drop("gone"));
  CHECK(store.is_filing());
  CHECK(store.events() == 2);
  on_disk.set_value();
  REQUIRE(listener.wait_cut().ok());
  CHECK_FALSE(store.is_filing());
  CHECK(synced == std::vector<std::vector<std::string>>{{"/again"}, {"/ended"}});
  for (const char* id : {"one", "two"}) store.file(row(id, 2.5));
  opened.value().reset();  // Not before they are there.
  auto later = EventStore::open(folder.state());
  const auto runs = later.value()->load_runs();
  REQUIRE(runs.ok());
  std::map<RunId, bool> found;
  for (const storage::StoredRun& run : runs.value()) found[run.id] = run.is_finished();
  CHECK(found == std::map<RunId, bool>{{"again", false}, {"ended", true}, {"one", true}, {"two", true}});
}

TEST_CASE("event store: a cut waits for an ended run whose row has changed meanwhile, too") {
  const StateFolder folder;
  StoreListener listener;
  std::counting_semaphore<> disk(0);
  std::atomic<int> syncs = 0;
  EventStore::Handlers handlers = listener.handlers();
  handlers.sync = [&](const std::vector<std::string>&) {
    ++syncs;
    syncs.notify_all();
    disk.acquire();
  };
  auto opened = EventStore::open(folder.state());
  EventStore& store = *opened.value();
  REQUIRE(store.start(std::move(handlers)));
  listener.wait_committed(store.append(at(1), closed(1)));
  const storage::StoredRun run{"run", "name", "", "", "/run", 1, "failed", 1, 1.5, 2.5, 0, {}, ""};
  store.file(run);
  syncs.wait(0);
  store.file(run);
  store.compact(1, {});
  disk.release();
  syncs.wait(1);
  listener.wait_committed(store.append(at(2), closed(2)));
  CHECK_FALSE(listener.has_cut());
  disk.release();
  CHECK(listener.wait_cut().ok());
}

TEST_CASE("event store: it says how long each transaction took, and what its files take") {
  const StateFolder folder;
  StoreListener listener;
  std::atomic<int> timed = 0;
  EventStore::Handlers handlers = listener.handlers();
  handlers.on_timed = [&](Duration took) { timed += took > Duration::zero() ? 1 : 0; };
  auto opened = EventStore::open(folder.state());
  EventStore& store = *opened.value();
  const auto before = store.file_bytes();
  CHECK(before > 0);
  REQUIRE(store.start(std::move(handlers)));
  for (int number = 1; number <= 3; ++number) listener.wait_committed(store.append(at(number), closed(number)));
  CHECK(timed >= 3);  // One more takes away what a cut has left, if any.
  CHECK(store.file_bytes() > before);
}

TEST_CASE("event store: events are read some at a time, and none is left out in between") {
  const StateFolder folder;
  {
    StoreListener listener;
    auto opened = EventStore::open(folder.state());
    REQUIRE(opened.value()->start(listener.handlers()));
    for (int number = 1; number < 7; ++number) (void)opened.value()->append(at(number), closed(number));
    listener.wait_committed(opened.value()->append(at(7), closed(7)));
  }
  const auto database = storage::Database::open(folder.file("coordinator.db"));
  REQUIRE(database.ok());
  const auto read = [&](std::uint64_t behind, std::int64_t most) {
    std::vector<std::uint64_t> ids;
    const auto take = [&ids](const storage::StoredEvent& event) -> Status {
      ids.push_back(event.id);
      return {};
    };
    REQUIRE(storage::read_events(*database.value(), {behind, {}}, 6, take, most).ok());
    return ids;
  };
  CHECK(read(0, 2) == std::vector<std::uint64_t>{1, 2});
  CHECK(read(2, 3) == std::vector<std::uint64_t>{3, 4, 5});
  CHECK(read(5, 3) == std::vector<std::uint64_t>{6});
  CHECK(read(6, 3).empty());
  CHECK(read(0, storage::kAllEvents).size() == 6);
}

TEST_CASE("event store: the clock's offset holds for one start of the machine") {
  const StateFolder folder;
  auto store = EventStore::open(folder.state());
  REQUIRE(store.ok());
  storage::StoreTables& tables = store.value()->tables();
  CHECK_FALSE(tables.clock_offset().value().has_value());
  REQUIRE(tables.set_clock_offset(Duration(-12345)).ok());
  CHECK(tables.clock_offset().value() == Duration(-12345));
  execute(folder, "UPDATE meta SET value='another' WHERE key='boot_id'");
  CHECK_FALSE(tables.clock_offset().value().has_value());
}

TEST_CASE("event store: a store of the version before is read") {
  const StateFolder folder;
  fill(folder, 3);
  execute(folder, "DROP TABLE states; DROP TABLE cut; PRAGMA user_version=1");
  CHECK(stored(folder) == first(3));
}

TEST_CASE(
    "event store: what waits for the disk is full by its bytes, however few events they are; limit kQueueBytesMax") {
  const StateFolder folder;
  const auto store = std::move(EventStore::open(folder.state())).value();
  REQUIRE(store->load([](TimePoint, core::CoordinatorEvent&&) {}).ok());
  constexpr std::size_t kBytes = 1 << 20;
  const core::CoordinatorEvent event = core::coordinator_event::SearchSaid{"x", std::string(kBytes, 'a')};
  std::size_t events = 0;
  for (; !store->is_full() && events <= EventStore::kQueueBytesMax / kBytes; ++events)
    (void)store->append({}, event);  // Nothing is committed before its start.
  CHECK(store->is_full());
  CHECK(events == EventStore::kQueueBytesMax / kBytes);
  CHECK_FALSE(store->has_room());
}

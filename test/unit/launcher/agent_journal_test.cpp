// An agent's journal: what is written comes back, and what is cut short or damaged ends it.
#include "launcher/agent/agent_journal.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "keeper_test_support.hpp"
#include "launcher/agent/past_life.hpp"

using namespace sgd;
using namespace sgd::agent;
namespace event = sgd::core::agent_event;

namespace {

std::vector<core::AgentEvent> one_of_each() {
  cluster::DesiredRun desired;
  desired.run = "run";
  desired.generation = 3;
  desired.job = {{"name", "x"}};
  keeper::Exited exited;
  exited.tail = {"bad \xff byte", "last"};
  return {event::Connected{},
          event::Disconnected{},
          event::FromCoordinator{desired},
          event::KeeperStarted{"run", "/run/link-1.sock"},
          event::FromKeeper{"run", exited},
          event::KeeperClosed{"run", 9, "how"},
          event::StraysCleared{"run"},
          event::FromWorker{4, 77, link::Report{{1, "train", 2, 3}, 4, {{"loss", 0.1}}}},
          event::FromWorker{5, 78, link::Hello{"token", 78, 1, "test"}, "run"},
          event::LinkClosed{4},
          event::FetchAdvanced{"run", "c", 5},
          event::CheckpointFetched{"run", "c", "no", true},
          event::SlotsChanged{2},
          event::LeavingSoon{},
          event::Tick{},
          event::Resumed{3, "10.0.0.1", 1 << 30, {{"a", "b"}}}};
}

JournalHeader header(const std::string& runtime_dir = "/nowhere") {
  core::AgentFacts facts;
  facts.node = "n";
  facts.incarnation = 18446744073709551615u;
  facts.allowed_cores = {0, 2};
  facts.beat_interval = std::chrono::seconds(1);
  facts.labels = {{"gpu", "h100"}};
  return {boot_id(), SGD_VERSION, runtime_dir, facts, {1, 2, 3, 18446744073709551615u}, 7, 5, 6};
}

void write_journal(const std::string& path, const std::string& runtime_dir = "/nowhere") {
  AgentJournal journal(path);
  REQUIRE(journal.begin(header(runtime_dir)).ok());
  std::int64_t told = 5;
  for (const core::AgentEvent& one : one_of_each()) {
    const core::TimedEvent timed{TimePoint(Duration(1000 + ++told)), one};
    REQUIRE(journal.append(std::span(&timed, 1), told).ok());
  }
}

/// How many events come back.
std::size_t count_of(const std::string& path) {
  auto past = PastJournal::open(path);
  REQUIRE(past.ok());
  REQUIRE(past.value().has_value());
  for (std::size_t count = 0;; ++count) {
    auto record = past.value()->next();
    REQUIRE(record.ok());
    if (!record.value()) return count;
  }
}

}  // namespace

TEST_CASE("journal: every kind of event comes back") {
  const std::vector<core::AgentEvent> events = one_of_each();
  std::vector<bool> seen(std::variant_size_v<core::AgentEvent>);
  for (const core::AgentEvent& one : events) {
    seen[one.index()] = true;
    const std::string text = encode(core::TimedEvent{TimePoint(Duration(123)), one}, 9);
    const auto back = decode_record(text);
    INFO(text);
    REQUIRE(back.ok());
    CHECK(back.value().event.event.index() == one.index());
    CHECK(back.value().event.at == TimePoint(Duration(123)));
    CHECK(back.value().told == 9);
    CHECK(encode(back.value().event, 9) == text);
  }
  CHECK(std::find(seen.begin(), seen.end(), false) == seen.end());
}

TEST_CASE("journal: header and events are read as they were written") {
  const keeper_test::TemporaryDir folder;
  const std::string path = folder.file("journal");
  write_journal(path);
  auto past = PastJournal::open(path);
  REQUIRE(past.ok());
  const JournalHeader& first = past.value()->header();
  CHECK(encode(first) == encode(header()));
  CHECK(first.facts.incarnation == 18446744073709551615u);
  CHECK(first.facts.beat_interval == Duration(std::chrono::seconds(1)));
  CHECK_FALSE(first.facts.orphan_timeout.has_value());
  CHECK(count_of(path) == one_of_each().size());
  const auto none = PastJournal::open(folder.file("none"));
  REQUIRE(none.ok());
  CHECK_FALSE(none.value().has_value());
}

TEST_CASE("journal: a record that is cut short or damaged ends it, and others are written in its place") {
  const keeper_test::TemporaryDir folder;
  const std::string path = folder.file("journal");
  write_journal(path);
  const std::string whole = keeper_test::read_file(path);
  std::size_t fewest = one_of_each().size();
  for (std::size_t size = whole.size(); size > 600; size -= 7) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << whole.substr(0, size);
    const std::size_t count = count_of(path);
    CHECK(count <= fewest);
    fewest = count;
  }
  CHECK(fewest < one_of_each().size());
  std::string damaged = whole;
  damaged[whole.size() - 10] ^= 1;
  std::ofstream(path, std::ios::binary | std::ios::trunc) << damaged;
  auto past = PastJournal::open(path);
  REQUIRE(past.ok());
  std::size_t count = 0;
  for (auto record = past.value()->next(); record.ok() && record.value(); record = past.value()->next()) ++count;
  CHECK(count == one_of_each().size() - 1);
  AgentJournal journal(path);
  REQUIRE(journal.go_on(past.value()->read_bytes()).ok());
  const core::TimedEvent timed{TimePoint(Duration(5000)), event::Tick{}};
  REQUIRE(journal.append(std::span(&timed, 1), 30).ok());
  CHECK(count_of(path) == one_of_each().size());
}

TEST_CASE("journal: one that cannot be gone on with is refused, and it is said why") {
  const keeper_test::TemporaryDir folder;
  const std::string path = folder.file("journal");
  const auto why_not = [&](const JournalHeader& first, const std::string& node) {
    AgentJournal journal(path);
    REQUIRE(journal.begin(first).ok());
    return find_past_life(path, node).why_not;
  };
  JournalHeader other = header();
  other.boot_id = "another";
  CHECK(why_not(other, "n") == "the system was started anew since");
  other = header();
  other.program = "0.0.1";
  CHECK(why_not(other, "n") == "it is of version 0.0.1");
  CHECK(why_not(header(), "m") == "it is of node n");
  AgentJournal journal(path);
  REQUIRE(journal.begin(header()).ok());
  const core::TimedEvent timed{TimePoint(Duration(5000)), event::Tick{}};
  REQUIRE(journal.append(std::span(&timed, 1), 30).ok());
  CHECK(find_past_life(path, "n").why_not == "its events lead to 5 facts where 30 were told");
  std::ofstream(path, std::ios::trunc) << "{}";
  CHECK(find_past_life(path, "n").why_not.find("is not a journal of this program") != std::string::npos);
}

TEST_CASE("journal: a folder of sockets that is kept outlives its owner, and is taken by the next") {
  const keeper_test::TemporaryDir folder;
  const std::string base = folder.file("base");
  REQUIRE(std::filesystem::create_directory(base));
  auto made = process::RuntimeDir::create(base);
  REQUIRE(made.ok());
  const std::string path = made.value().path();
  REQUIRE(made.value().keep_for(folder.file("owner")).ok());
  CHECK_FALSE(process::RuntimeDir::take(path).ok());  // Somebody has it.
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    // Another owner, that dies without a word.
    auto other = process::RuntimeDir::create(base);
    if (!other || !other.value().keep_for(folder.file("dead"))) ::_exit(1);
    ::_exit(0);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  CHECK(process::remove_dead_runtime_dirs(base) == 0);
  const std::string left = std::filesystem::read_symlink(folder.file("dead")).string();
  auto taken = process::RuntimeDir::take(left);
  REQUIRE(taken.ok());
  REQUIRE(std::filesystem::remove(folder.file("owner")));
  CHECK(process::remove_dead_runtime_dirs(base) == 0);  // Its owner lives.
}

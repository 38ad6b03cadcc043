// An agent's journal: what is written comes back, and what is cut short or damaged ends it.
#include "launcher/agent/agent_journal.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "keeper_test_support.hpp"
#include "launcher/agent/previous_agent.hpp"
#include "launcher/storage/agent_state_codec.hpp"

using namespace sgd;
using namespace sgd::agent;
namespace event = sgd::core::agent_event;

namespace {

std::vector<core::AgentEvent> one_of_each() {
  cluster::DesiredRun desired;
  desired.run = "run";
  desired.generation = 3;
  desired.job = nlohmann::json{{"name", "x"}};
  keeper::Exited exited;
  exited.tail = {"bad \xff byte", "last"};
  return {event::Connected{"10.0.0.1"},
          event::Disconnected{},
          event::FromCoordinator{desired},
          event::KeeperStarted{"run", "/run/link-1.sock"},
          event::FromKeeper{"run", exited},
          event::KeeperClosed{"run", 9, "how", true},
          event::StraysCleared{"run"},
          event::PortReserved{"run", 3, 29500, "no"},
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
  return {boot_id(), SGD_VERSION, runtime_dir, "n"};
}

/// Of an agent that has told five facts, and an entry of each kind in its shell's state.
std::vector<storage::StateRow> saved_state() {
  core::AgentFacts facts;
  facts.node = "n";
  facts.incarnation = 18446744073709551615u;
  facts.allowed_cores = {0, 2};
  facts.beat_interval = std::chrono::seconds(1);
  facts.labels = {{"gpu", "h100"}};
  const core::Agent agent(facts, core::Secrets({1, 2, 3, 18446744073709551615u}, 7), 5);
  std::vector<storage::StateRow> rows = storage::encode_agent(agent);
  AgentShellState shell_state;
  shell_state.keepers_made = 6;
  shell_state.next_link = 9;
  shell_state.keepers["run"] = {6, true, 3, 4, {"{\"type\":\"close\"}"}};
  shell_state.links[8] = {"run", "token", 77, true, true, 5, 6, {"line\n"}};
  shell_state.link_paths["run"] = "/run/link-6.sock";
  shell_state.remotes["run"] = "/runs/run";
  rows.push_back(encode(shell_state));
  return rows;
}

void write_journal(const std::string& path, const std::string& runtime_dir = "/nowhere") {
  AgentJournal journal(path);
  REQUIRE(journal.begin(header(runtime_dir), saved_state()).ok());
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
  CHECK(past.value()->header().runtime_dir == "/nowhere");
  CHECK(past.value()->header().node == "n");
  const JournalStart& start = past.value()->start();
  const core::Agent agent(start.machine);
  CHECK(agent.last_sequence() == 5);
  CHECK(agent.tokens().drawn() == 7);
  CHECK(agent.tokens().key()[3] == 18446744073709551615u);
  CHECK(agent.facts().incarnation == 18446744073709551615u);
  CHECK(agent.facts().beat_interval == Duration(std::chrono::seconds(1)));
  CHECK_FALSE(agent.facts().orphan_timeout.has_value());
  CHECK(encode(start.shell_state).text == saved_state().back().text);
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
  const std::size_t state_ends = whole.find("\"event\":\"connected\"");
  for (std::size_t size = whole.size(); size > state_ends; size -= 7) {
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
    REQUIRE(journal.begin(first, saved_state()).ok());
    return find_previous_agent(path, node).why_not;
  };
  JournalHeader other = header();
  other.boot_id = "another";
  CHECK(why_not(other, "n") == "the system was rebooted since");
  other = header();
  other.program = "0.0.1";
  CHECK(why_not(other, "n") == "it is of version 0.0.1");
  CHECK(why_not(header(), "m") == "it is of node n");
  AgentJournal journal(path);
  REQUIRE(journal.begin(header(), saved_state()).ok());
  const core::TimedEvent timed{TimePoint(Duration(5000)), event::Tick{}};
  REQUIRE(journal.append(std::span(&timed, 1), 30).ok());
  CHECK(find_previous_agent(path, "n").why_not == "its events lead to 5 facts where 30 were told");
  std::ofstream(path, std::ios::trunc) << "{}";
  CHECK(find_previous_agent(path, "n").why_not.find("is not a journal of this program") != std::string::npos);
}

TEST_CASE("journal: one whose state is not whole is refused") {
  const keeper_test::TemporaryDir folder;
  const std::string path = folder.file("journal");
  write_journal(path);
  const std::string whole = keeper_test::read_file(path);
  for (const char* last : {"\"state\":\"agent\"", "\"state\":\"books\""}) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << whole.substr(0, whole.find(last) + 40);
    CHECK(find_previous_agent(path, "n").why_not == path + ": its state is not whole");
  }
  std::string damaged = whole;
  damaged[whole.find("h100")] ^= 1;
  std::ofstream(path, std::ios::binary | std::ios::trunc) << damaged;
  CHECK(find_previous_agent(path, "n").why_not == path + ": its state is not whole");
}

TEST_CASE("journal: it is long when it passes its limit and twice its state, and begins anew in one step") {
  const keeper_test::TemporaryDir folder;
  const std::string path = folder.file("journal");
  AgentJournal journal(path, 10'000);
  REQUIRE(journal.begin(header(), saved_state()).ok());
  CHECK_FALSE(journal.is_long());
  const core::TimedEvent timed{TimePoint(Duration(5000)), event::KeeperClosed{"run", 9, std::string(6000, 'x')}};
  REQUIRE(journal.append(std::span(&timed, 1), 5).ok());
  CHECK_FALSE(journal.is_long());
  REQUIRE(journal.append(std::span(&timed, 1), 5).ok());
  CHECK(journal.is_long());
  // What a process that died in the middle of this has left: the journal is as it was.
  std::ofstream(path + ".new", std::ios::binary) << keeper_test::read_file(path).substr(0, 700);
  CHECK(count_of(path) == 2);
  REQUIRE(journal.begin(header(), saved_state()).ok());
  CHECK_FALSE(journal.is_long());
  CHECK(count_of(path) == 0);
  CHECK_FALSE(std::filesystem::exists(path + ".new"));
  REQUIRE(journal.append(std::span(&timed, 1), 5).ok());
  CHECK(count_of(path) == 1);
  std::vector<storage::StateRow> large = saved_state();
  large.push_back({"run", "large", std::string(20'000, ' ')});
  REQUIRE(journal.begin(header(), large).ok());
  REQUIRE(journal.append(std::span(&timed, 1), 5).ok());
  CHECK_FALSE(journal.is_long());  // Twice its state is more than the limit.
}

TEST_CASE("journal: one that cannot begin anew goes on as it is, and is tried again when it is twice as long") {
  const keeper_test::TemporaryDir folder;
  const std::string path = folder.file("journal");
  AgentJournal journal(path, 10'000);
  REQUIRE(journal.begin(header(), saved_state()).ok());
  const core::TimedEvent timed{TimePoint(Duration(5000)), event::KeeperClosed{"run", 9, std::string(12'000, 'x')}};
  REQUIRE(journal.append(std::span(&timed, 1), 5).ok());
  REQUIRE(journal.is_long());
  REQUIRE(std::filesystem::create_directory(path + ".new"));
  CHECK_FALSE(journal.begin(header(), saved_state()).ok());
  CHECK(journal.is_on());
  CHECK_FALSE(journal.is_long());
  REQUIRE(journal.append(std::span(&timed, 1), 5).ok());
  CHECK(count_of(path) == 2);
  REQUIRE(journal.append(std::span(&timed, 1), 5).ok());
  CHECK(journal.is_long());
  REQUIRE(std::filesystem::remove(path + ".new"));
  REQUIRE(journal.begin(header(), saved_state()).ok());
  CHECK(count_of(path) == 0);
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

// A machine that takes what the filter keeps stands where the one stands that took everything: from any point on,
// both answer the same to whatever comes.
#include "launcher/core/journal_filter.hpp"

#include <catch2/catch.hpp>

#include "test/unit/core/agent_story.hpp"

using namespace sgd;
using namespace sgd::core;
using namespace std::chrono_literals;
using namespace sgd::core::agent_story;

namespace {

struct Machine {
  Agent agent{facts(), Secrets({1, 2, 3, 4})};
  AgentCommands commands;
  const AgentCommands& on(TimePoint now, const AgentEvent& event) {
    commands.clear();
    agent.on(now, event, commands);
    return commands;
  }
};

}  // namespace

TEST_CASE("a replay of what the filter keeps stands where the machine stands") {
  std::size_t taken = 0;
  std::size_t written = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    INFO("seed " << seed);
    Story story(seed);
    Machine straight;
    JournalFilter filter;
    std::vector<TimedEvent> journal;
    bool is_exact = false;  // The last event was written.
    for (std::size_t count = 0; count < 40 + seed || !is_exact; ++count) {
      const AgentEvent event = story.next(straight.agent);
      story.note(straight.on(story.now(), event));
      const std::size_t before = journal.size();
      filter.take(story.now(), event, straight.agent.was_soft(), journal);
      is_exact = journal.size() > before;
      ++taken;
    }
    written += journal.size();
    Machine replayed;
    TimePoint last{};
    for (const TimedEvent& timed : journal) {
      CHECK(timed.at >= last);
      last = timed.at;
      (void)replayed.on(timed.at, timed.event);
    }
    REQUIRE(replayed.agent.last_sequence() == straight.agent.last_sequence());
    const AgentEvent resumed = agent_event::Resumed{4, "", 0, {}};
    CHECK(words(replayed.on(story.now(), resumed)) == words(straight.on(story.now(), resumed)));
    for (int count = 0; count < 60; ++count) {
      const AgentEvent event = count == 0 ? AgentEvent(agent_event::Connected{}) : story.next(straight.agent);
      const bool is_tick = std::holds_alternative<agent_event::Tick>(event);
      const std::int64_t told = straight.agent.last_sequence();
      story.note(straight.on(story.now(), event));
      REQUIRE(words(replayed.on(story.now(), event), is_tick, told) == words(straight.commands, is_tick, told));
    }
  }
  CHECK(written < taken);
}

TEST_CASE("a quiet run writes next to nothing") {
  JournalFilter filter;
  std::vector<TimedEvent> journal;
  link::Heartbeat beat;
  for (int second = 0; second < 1000; ++second) {
    beat.step = second;
    filter.take(TimePoint(std::chrono::seconds(second)), agent_event::FromWorker{1, 5, beat}, true, journal);
    filter.take(TimePoint(std::chrono::seconds(second)), agent_event::Tick{}, true, journal);
  }
  CHECK(journal.size() == 1);  // A link's first heartbeat.
  filter.take(TimePoint(1000s), agent_event::LeavingSoon{}, false, journal);
  REQUIRE(journal.size() == 3);
  CHECK(std::get<link::Heartbeat>(std::get<agent_event::FromWorker>(journal[1].event).message).step == 999);
}

// A machine that is made of an agent's saved state goes on as the one that it was taken of.
#include "launcher/storage/agent_state_codec.hpp"

#include <catch2/catch.hpp>

#include "test/unit/core/agent_story.hpp"

using namespace sgd;
using namespace sgd::core;
using namespace sgd::core::agent_story;

namespace {

std::vector<std::string> texts(const std::vector<storage::StateRow>& rows) {
  std::vector<std::string> all;
  for (const storage::StateRow& row : rows) all.push_back(row.kind + " " + row.id + " " + row.text);
  return all;
}

std::unique_ptr<Agent> copy_of(const Agent& machine) {
  const std::vector<storage::StateRow> rows = storage::encode_agent(machine);
  auto saved = storage::decode_agent(rows);
  INFO((saved.ok() ? "" : saved.error().message));
  REQUIRE(saved.ok());
  auto copy = std::make_unique<Agent>(std::move(saved).value());
  CHECK(texts(storage::encode_agent(*copy)) == texts(rows));
  return copy;
}

}  // namespace

TEST_CASE("agent state: a machine saved at any point answers as the one that goes on") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    INFO("seed " << seed);
    Story story(seed);
    Agent straight(facts(), Secrets({1, 2, 3, 4}));
    AgentCommands commands;
    const auto next = [&](Agent* beside) {
      const AgentEvent event = story.next(straight);
      commands.clear();
      straight.on(story.now(), event, commands);
      story.note(commands);
      if (beside == nullptr) return;
      AgentCommands others;
      beside->on(story.now(), event, others);
      REQUIRE(words(others) == words(commands));
      REQUIRE(beside->next_wakeup() == straight.next_wakeup());
      REQUIRE(beside->was_soft() == straight.was_soft());
      REQUIRE(beside->last_sequence() == straight.last_sequence());
    };
    for (std::uint64_t count = 0; count < 20 + seed; ++count) next(nullptr);
    std::unique_ptr<Agent> saved = copy_of(straight);
    for (int count = 0; count < 100; ++count) {
      next(saved.get());
      if (count == 50) saved = copy_of(*saved);
    }
  }
}

TEST_CASE("agent state: what is no state is refused") {
  const Agent agent(facts(), Secrets({1, 2, 3, 4}));
  const std::vector<storage::StateRow> rows = storage::encode_agent(agent);
  const auto why_not = [](const std::vector<storage::StateRow>& some) {
    const auto saved = storage::decode_agent(some);
    return saved ? "" : saved.error().message;
  };
  CHECK(why_not(rows).empty());
  CHECK(why_not({}) == "the state of no agent");
  CHECK(why_not({{"other", "", "{}"}}) == "unknown kind of state \"other\"");
  CHECK(why_not({{"agent", "", "{"}}).find("agent ") == 0);
  CHECK(why_not({{"agent", "", "{}"}}).find("\"facts\" is missing") != std::string::npos);
}

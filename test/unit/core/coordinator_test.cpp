#include <set>

#include <fmt/format.h>

#include "test/unit/core/coordinator_bench.hpp"

using namespace sgd;
using namespace std::chrono_literals;
using Bench = core::CoordinatorBench;
using core::Coordinator;
using core::CoordinatorCommands;
using core::RunPhase;

TEST_CASE("facts count once and in order, and are acknowledged as far as they are known") {
  Bench bench;
  bench.node("a", 2);
  bench.submit("run", 2);
  bench.fact("a", "run", 1, cluster::WorkerStarted{0, 100});
  CHECK(bench.acknowledged() == 1);
  CHECK(bench.events() == 1);
  bench.fact("a", "run", 1, cluster::WorkerStarted{0, 100});
  CHECK(bench.acknowledged() == 1);
  CHECK(bench.events() == 0);
  bench.fact("a", "run", 3, cluster::WorkerReady{0, {}});  // The second is still on its way.
  CHECK(bench.acknowledged() == -1);
  CHECK(bench.events() == 0);
  bench.fact("a", "run", 2, cluster::WorkerStarted{1, 101});
  CHECK(bench.acknowledged() == 2);
  bench.fact("a", "run", 3, cluster::WorkerReady{0, {}});
  CHECK(bench.acknowledged() == 3);
  CHECK(bench.events() == 1);
}

TEST_CASE("facts of another generation, of an unknown run and of an unknown node change nothing") {
  Bench bench;
  bench.node("a", 2);
  bench.submit("run", 2);
  bench.fact("a", "run", 1, cluster::WorkerStarted{0, 100}, 2);
  CHECK(bench.acknowledged() == 1);
  CHECK(bench.events() == 0);
  bench.fact("a", "other", 2, cluster::WorkerStarted{0, 100});
  CHECK(bench.acknowledged() == 2);
  CHECK(bench.events() == 0);
  bench.fact("b", "run", 1, cluster::WorkerStarted{0, 100});
  CHECK(bench.acknowledged() == -1);
  bench.fact("a", "run", 3, cluster::WorkerStarted{0, 100}, 1, 7);  // Of an agent that is no more.
  CHECK(bench.acknowledged() == -1);
  CHECK(bench.events() == 0);
}

TEST_CASE("a node speaks for its own ranks, and is of a run only where it has had one") {
  Bench bench;
  for (const char* node : {"a", "b", "c"}) bench.node(node, 1);
  bench.submit("run", 2);
  bench.fact("b", "run", 1, cluster::WorkerReady{0, {}});
  CHECK(bench.acknowledged() == 1);
  CHECK(bench.events() == 0);
  bench.fact("c", "run", 1, cluster::WorkerReady{0, {}});
  CHECK(bench.facts().of(core::FactVerdict::kOtherNode) == 1);
  CHECK(bench.facts().of(core::FactVerdict::kNotOfRun) == 1);
  CHECK_FALSE(bench.has_had_rank("run", "c"));
  CHECK(bench.has_had_rank("run", "b"));
}

TEST_CASE("a silent node is lost after node_timeout and a second look; any word counts") {
  Bench bench(5s);
  bench.node("a", 1);
  bench.node("b", 1);
  bench.submit("run", 2);
  for (int second = 0; second < 20; ++second) {
    bench.wait(1s);
    bench.from("a", cluster::Beat{});
    bench.from("b", cluster::Beat{});
  }
  CHECK(bench.knows("b"));
  bench.wait(4s);
  bench.from("a", cluster::Beat{});
  bench.wait(1s);
  CHECK(bench.knows("b"));
  bench.from("b", cluster::Beat{});  // It lay unread.
  bench.wait(100ms);
  CHECK(bench.knows("b"));
  bench.from("a", cluster::Beat{});
  bench.wait(4900ms);
  bench.from("a", cluster::Beat{});
  bench.wait(100ms);
  CHECK_FALSE(bench.knows("b"));
  CHECK(bench.phase("run") == RunPhase::kRecovering);
}

TEST_CASE("after a restart nodes have time for as long as others come back, up to a limit") {
  constexpr int kNodes = 1000;
  const auto name = [](int number) { return fmt::format("n{:04d}", number); };
  Bench bench(5s);
  for (int number = 0; number < kNodes; ++number) bench.node(name(number), 1);
  bench.on(core::coordinator_event::Restarted{});
  int back = 0;
  const auto come = [&](int count) {
    for (int number = 0; number < count; ++number) bench.node(name(back++), 1);
  };
  const auto pass = [&](Duration time) {
    for (int number = 0; number < back; ++number) bench.from(name(number), cluster::Beat{});
    bench.wait(time);
  };
  SECTION("a slow machine") {
    for (int second = 0; second < 19; ++second) {
      come(50);
      pass(1s);
    }
    CHECK(bench.knows(name(999)));
    pass(3900ms);
    CHECK(bench.knows(name(999)));
    pass(200ms);
    CHECK_FALSE(bench.knows(name(999)));
    CHECK(bench.knows(name(949)));
  }
  SECTION("a trickle") {
    for (int second = 0; second < 25; ++second) {
      CHECK(bench.knows(name(999)));
      come(1);
      pass(1s);
    }
    pass(200ms);
    CHECK_FALSE(bench.knows(name(999)));
  }
  SECTION("nobody comes") {
    pass(6900ms);
    CHECK(bench.knows(name(999)));
    pass(300ms);
    CHECK_FALSE(bench.knows(name(999)));
  }
}

TEST_CASE("a tick that comes late loses nobody") {
  for (const Duration late : {Duration(5500ms), Duration(1min), Duration(24h)}) {
    Bench bench(5s);
    bench.node("a", 1);
    bench.submit("run", 1);
    bench.wait_late(late);
    CHECK(bench.knows("a"));
    bench.wait(5s);
    CHECK(bench.knows("a"));
    bench.wait(100ms);
    CHECK_FALSE(bench.knows("a"));
  }
}

TEST_CASE("nodes in the coordinator's own process have no timeout") {
  Bench bench;
  bench.node("a", 1);
  CHECK_FALSE(bench.coordinator().next_wakeup().has_value());
  bench.wait_late(24h);
  CHECK(bench.knows("a"));
}

TEST_CASE("an agent that was started anew is another one: its ranks are lost at once, its facts count from 1") {
  Bench bench(5s);
  bench.node("a", 1);
  bench.node("b", 1);
  bench.submit("run", 2);
  bench.fact("b", "run", 1, cluster::WorkerStarted{1, 101});
  bench.on(core::coordinator_event::AgentClosed{"b"});
  bench.node("b", 1, 2);
  CHECK(bench.phase("run") == RunPhase::kRecovering);
  CHECK(bench.wanted("a", "run")->want == cluster::Want::kClear);
  CHECK_FALSE(bench.wanted("b", "run").has_value());
  bench.fact("a", "run", 1, cluster::Cleared{1}, 2);
  CHECK(bench.phase("run") == RunPhase::kStarting);
  CHECK(bench.wanted("b", "run")->ranks.size() == 1);
  bench.fact("b", "run", 1, cluster::WorkerStarted{1, 201}, 2, 2);
  CHECK(bench.acknowledged() == 1);
  CHECK(bench.events() == 1);
}

TEST_CASE("a node that was lost and comes back as the same agent counts its facts on") {
  Bench bench(5s);
  bench.node("a", 1);
  bench.submit("run", 1);
  for (int sequence = 1; sequence <= 3; ++sequence) bench.fact("a", "run", sequence, cluster::Report{0, {}});
  for (const bool is_new_link : {true, false}) {
    bench.wait(6s);
    CHECK_FALSE(bench.knows("a"));
    if (is_new_link) bench.node("a", 1);
    if (!is_new_link) bench.from("a", cluster::Beat{});
    CHECK(bench.knows("a"));
    bench.fact("a", "run", is_new_link ? 4 : 5, cluster::Report{0, {}});
    CHECK(bench.acknowledged() == (is_new_link ? 4 : 5));
  }
}

TEST_CASE("slots are taken back from the newest run first, and only as many as are missing") {
  Bench bench;
  bench.node("a", 4);
  bench.submit("first", 2);
  bench.submit("second", 2);
  bench.node("a", 3, 1, false);
  CHECK_FALSE(bench.wanted("a", "first").has_value());
  CHECK(bench.wanted("a", "second")->want == cluster::Want::kClear);
  CHECK(bench.phase("first") == RunPhase::kStarting);
  bench.fact("a", "second", 1, cluster::Cleared{}, 2);
  CHECK(bench.wanted("a", "second")->ranks.size() == 1);
  bench.node("a", 1, 1, false);
  CHECK(bench.wanted("a", "first")->want == cluster::Want::kClear);
  CHECK(bench.wanted("a", "second")->want == cluster::Want::kClear);
}

TEST_CASE("what one run gives back another that waits takes, in the order of their names") {
  Bench bench;
  bench.node("a", 2);
  bench.submit("first", 2);
  bench.submit("second", 2);
  bench.submit("third", 2);
  CHECK(bench.phase("second") == RunPhase::kPlacing);
  bench.on(core::coordinator_event::StopRequested{"first", {core::StopRequest::Why::kCancelled, 0, true, {}}});
  CHECK(bench.phase("first") == RunPhase::kClearing);
  CHECK(bench.phase("second") == RunPhase::kPlacing);
  bench.fact("a", "first", 1, cluster::Cleared{});
  CHECK(bench.phase("first") == RunPhase::kFinished);
  CHECK(bench.phase("second") == RunPhase::kStarting);
  CHECK(bench.phase("third") == RunPhase::kPlacing);
}

TEST_CASE("with no live run, the known nodes stand for everything before: facts count on, lost ones are still lost") {
  Bench bench(5s);
  bench.node("a", 2);
  bench.node("b", 1, 9);
  bench.submit("first", 1);
  bench.fact("a", "first", 1, cluster::WorkerStarted{0, 100});
  bench.on(core::coordinator_event::StopRequested{"first", {core::StopRequest::Why::kCancelled, 0, true, {}}});
  bench.fact("a", "first", 2, cluster::Cleared{});
  bench.wait(3s);
  bench.from("a", cluster::Beat{});
  bench.wait(3s);
  CHECK(bench.phase("first") == RunPhase::kFinished);
  CHECK_FALSE(bench.knows("b"));
  const auto known = bench.coordinator().known_nodes();
  CHECK(known.nodes.size() == 2);

  Bench again(5s);
  again.replay(known);
  CHECK(again.knows("a"));
  CHECK_FALSE(again.knows("b"));
  const auto same = again.coordinator().known_nodes();
  for (std::size_t index = 0; index < 2; ++index) {
    CHECK(same.nodes[index].node == known.nodes[index].node);
    CHECK(same.nodes[index].state.incarnation == known.nodes[index].state.incarnation);
    CHECK(same.nodes[index].state.slots == known.nodes[index].state.slots);
    CHECK(same.nodes[index].last_fact == known.nodes[index].last_fact);
    CHECK(same.nodes[index].lost_at == known.nodes[index].lost_at);
  }
  for (Bench* one : {&bench, &again}) {
    one->submit("second", 2);
    CHECK(one->wanted("a", "second")->ranks.size() == 2);
    one->fact("a", "second", 3, cluster::WorkerStarted{0, 200});
    CHECK(one->acknowledged() == 3);
    CHECK(one->events() == 1);
  }
}

TEST_CASE("of nodes that are forgotten nothing stays but what operators ordered") {
  Bench bench(5s);
  bench.node("a-drained", 1);
  bench.order("a-drained", core::NodeOrder::Kind::kDrain);
  const int nodes = static_cast<int>(core::Coordinator::kLostMax) + 100;
  for (int number = 0; number < nodes; ++number) {
    bench.node(fmt::format("n{}", number), 1);
    bench.on(core::coordinator_event::AgentClosed{fmt::format("n{}", number)});
  }
  bench.wait(10s);
  const auto& state = bench.coordinator().state();
  CHECK(state.nodes_.empty());
  CHECK(state.lost_.size() == core::Coordinator::kLostMax);
  CHECK_FALSE(state.lost_.contains("a-drained"));
  CHECK(state.conditions_.size() == core::Coordinator::kLostMax + 1);
  CHECK(state.conditions_.at("a-drained").is_drained);
  bench.order("a-drained", core::NodeOrder::Kind::kRemove);
  CHECK(state.conditions_.size() == core::Coordinator::kLostMax);
}

TEST_CASE("an agent that holds a run nobody knows gives it up") {
  Bench bench;
  cluster::NodeState state;
  state.node = "a";
  state.incarnation = 1;
  state.is_new_link = true;
  state.runs = {{"old", 7}};
  bench.from("a", state);
  const auto wanted = bench.wanted("a", "old");
  REQUIRE(wanted.has_value());
  CHECK(wanted->want == cluster::Want::kGone);
  CHECK(wanted->generation == 7);
}

TEST_CASE(
    "a second agent of one name is refused while the first is heard over an open link, and nothing of it is stored") {
  Bench bench(5s);
  bench.node("a", 1);
  bench.wait(4900ms);
  bench.node("a", 1, 2);
  CHECK(bench.refused().starts_with("an agent with the name a is connected"));
  CHECK_FALSE(bench.has_stored());
  bench.node("a", 2, 1);  // The first one, over another link.
  CHECK(bench.refused().empty());
  CHECK(bench.row("a").slots == 2);
  SECTION("silent for node_timeout") {
    bench.wait(4s);
    bench.wait_late(1s);
    bench.node("a", 1, 2);
  }
  SECTION("this coordinator has been started anew, and has had no word over any link") {
    bench.on(core::coordinator_event::Restarted{});
    bench.node("a", 1, 2);
  }
  SECTION("its link is closed") {
    bench.on(core::coordinator_event::AgentClosed{"a"});
    bench.node("a", 1, 2);
  }
  CHECK(bench.refused().empty());
  CHECK(bench.has_stored());
  CHECK(bench.row("a").slots == 1);
}

TEST_CASE("facts of an agent that the coordinator does not know count from those that were acknowledged to it") {
  Bench bench(5s);
  cluster::NodeState state;
  state.node = "a";
  state.incarnation = 1;
  state.slots = 1;
  state.is_new_link = true;
  state.acknowledged = 41;
  bench.from("a", state);
  bench.fact("a", "other", 42, cluster::WorkerStarted{0, 100});
  CHECK(bench.acknowledged() == 42);
}

TEST_CASE(
    "orders: drain and slots belong to the name, whoever bears it; a node is removed when it is lost, or drained and "
    "empty") {
  using Kind = core::NodeOrder::Kind;
  Bench bench(5s);
  CHECK(bench.coordinator().why_not("a", {Kind::kDrain, -1}) == "no node a");
  bench.node("a", 2);
  bench.submit("run", 1);
  CHECK(bench.coordinator().why_not("a", {Kind::kRemove, -1}) == "a is connected and not drained: drain it first");
  bench.order("a", Kind::kDrain);
  CHECK(bench.coordinator().why_not("a", {Kind::kRemove, -1}) == "a still holds ranks of run");
  bench.order("a", Kind::kRemove);
  CHECK(bench.row("a").is_drained);
  bench.order("a", Kind::kSetSlots, 7);
  bench.on(core::coordinator_event::AgentClosed{"a"});
  bench.node("a", 2, 2);
  CHECK(bench.row("a").phase == core::NodePhase::kDrained);
  CHECK(bench.row("a").slots == 7);
  bench.order("a", Kind::kSetSlots);
  CHECK(bench.row("a").slots == 2);
  bench.order("a", Kind::kRemove);
  CHECK(bench.refused() == "removed by an operator");
  CHECK(bench.row("a").node.empty());
  bench.node("a", 2, 2);
  CHECK(bench.row("a").phase == core::NodePhase::kReady);
  bench.wait(6s);
  CHECK(bench.row("a").phase == core::NodePhase::kLost);
  bench.order("a", Kind::kRemove);
  CHECK(bench.row("a").node.empty());
}

TEST_CASE("a node whose link flaps is out until it has been well for a while; a fresh loss counts anew") {
  core::CoordinatorSettings settings;
  settings.node_timeout = 5s;
  settings.flaps_max = 2;
  settings.stable_after = 4s;
  Bench bench(settings);
  const auto flap = [&] {
    bench.on(core::coordinator_event::AgentClosed{"a"});
    bench.on(core::coordinator_event::AgentClosed{"a"});  // Said twice, lost once.
    bench.node("a", 1);
  };
  bench.node("a", 1);
  flap();
  flap();
  CHECK(bench.row("a").phase == core::NodePhase::kReady);
  flap();
  CHECK(bench.row("a").phase == core::NodePhase::kUnstable);
  CHECK(bench.row("a").reason == "unstable: link lost 3 times within 1h; `nodes undrain` takes it back at once");
  bench.submit("run", 1);
  CHECK(bench.phase("run") == RunPhase::kPlacing);
  bench.wait(3s);
  flap();
  bench.wait(3s);
  bench.from("a", cluster::Beat{});
  CHECK(bench.phase("run") == RunPhase::kPlacing);
  bench.wait(1s);
  CHECK(bench.phase("run") == RunPhase::kStarting);
}

TEST_CASE("nodes in the coordinator's own process are never unstable, and nobody is refused") {
  Bench bench;
  bench.node("a", 1);
  for (int time = 0; time < 20; ++time) {
    bench.on(core::coordinator_event::AgentClosed{"a"});
    bench.node("a", 1);
  }
  CHECK(bench.row("a").phase == core::NodePhase::kReady);
  bench.node("a", 1, 2);
  CHECK(bench.refused().empty());
}

TEST_CASE("an order is for the link that was there when it was decided") {
  Bench bench;
  const auto told = [&bench] {
    std::set<core::LinkNumber> all;
    for (const auto& command : bench.commands())
      if (const auto* send = std::get_if<core::coordinator_command::SendToAgent>(&command)) all.insert(send->link);
    return all;
  };
  using Links = std::set<core::LinkNumber>;
  bench.node("b", 0);
  bench.node("a", 1, 7);
  bench.submit("run", 1);
  const core::LinkNumber first = bench.coordinator().link_of("a");
  CHECK(first != bench.coordinator().link_of("b"));
  CHECK(told() == Links{first});
  bench.node("a", 1, 7);
  const core::LinkNumber second = bench.coordinator().link_of("a");
  CHECK(second != first);
  CHECK(told() == Links{second});
  bench.node("a", 1, 8);  // Its run is begun again there.
  CHECK(told() == Links{bench.coordinator().link_of("a")});
  CHECK_FALSE(Links{first, second}.contains(bench.coordinator().link_of("a")));
  CHECK(bench.coordinator().link_of("c") == 0);
}

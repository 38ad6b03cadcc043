// Agents that a coordinator does not take: each is told why, and few of their connections are kept for that. And
// orders for an agent whose place another one has taken.

#include <algorithm>
#include <chrono>
#include <deque>

#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include "launcher/coordinator/coordinator_shell.hpp"
#include "store_world.hpp"

using namespace sgd;
using coordinator::CoordinatorShell;

namespace {

struct Heard {
  net::CoordinatorLink::Handlers handlers;
  std::vector<std::string> refusals;
  std::vector<cluster::DesiredRun> orders;
  bool is_open = true;
};

/// Notes what the coordinator says to it, and when it lets go.
class NotedLink : public net::CoordinatorLink {
 public:
  explicit NotedLink(Heard& heard) : heard_(heard) {}
  ~NotedLink() override { heard_.is_open = false; }
  void start(Handlers handlers) override { heard_.handlers = std::move(handlers); }
  void send(cluster::ToAgent message) override {
    if (const auto* refused = std::get_if<cluster::AgentRefused>(&message)) heard_.refusals.push_back(refused->reason);
    if (const auto* desired = std::get_if<cluster::DesiredRun>(&message)) heard_.orders.push_back(*desired);
  }
  void send(net::SharedMessage& message) override { send(message.message); }

 private:
  Heard& heard_;
};

cluster::NodeState state_of(Incarnation incarnation) {
  cluster::NodeState state;
  state.node = "a";
  state.address = "10.0.0.1";
  state.incarnation = incarnation;
  state.slots = 1;
  state.is_new_link = true;
  return state;
}

}  // namespace

TEST_CASE("refused agents: each is told why, and the newest of them are kept until they leave") {
  constexpr std::size_t kTwins = CoordinatorShell::kTurnedAwayMax + 8;
  std::deque<Heard> heard(1 + kTwins);  // Before the shell, whose links write to it to the last.
  boost::asio::io_context io{1};
  core::CoordinatorSettings settings;
  settings.node_timeout = std::chrono::hours(1);
  CoordinatorShell shell(io, settings);
  for (std::size_t number = 0; number < heard.size(); ++number) {
    shell.add_agent("a", std::make_unique<NotedLink>(heard[number]));
    heard[number].handlers.on_message(state_of(static_cast<Incarnation>(number + 1)));
  }
  CHECK(heard.front().is_open);
  CHECK(heard.front().refusals.empty());
  for (std::size_t number = 1; number < heard.size(); ++number) {
    INFO(number);
    REQUIRE(heard[number].refusals.size() == 1);
    CHECK_THAT(heard[number].refusals.front(),
               Catch::StartsWith("an agent with the name a is connected from 10.0.0.1"));
    CHECK(heard[number].is_open == (number > kTwins - CoordinatorShell::kTurnedAwayMax));
  }
  // What such a one says is not heard any more, and when it has left, its place is free.
  heard.back().handlers.on_message(cluster::Beat{});
  heard.back().handlers.on_closed("it has read why");
  CHECK_FALSE(heard.back().is_open);
  // One that does not leave by itself has its connection closed.
  const auto is_any_left = [&heard] {
    return std::any_of(heard.begin() + 1, heard.end(), [](const Heard& one) { return one.is_open; });
  };
  CHECK(is_any_left());
  while (is_any_left() && io.run_one_for(std::chrono::seconds(10)) > 0) {
  }
  CHECK_FALSE(is_any_left());
  CHECK(heard.front().is_open);
  shell.stop();
}

TEST_CASE("an order that waited for the disk is not given to an agent that was started meanwhile") {
  std::deque<Heard> heard(2);
  test::World world(0);
  world.restart();
  world.submit("run", "", 1);
  world.run_until([&world] { return world.accepted.size() == 1; });
  const auto arrive = [&](std::size_t number) {
    world.shell().add_agent("a", std::make_unique<NotedLink>(heard[number]));
    heard[number].handlers.on_message(state_of(static_cast<Incarnation>(number + 1)));
  };
  arrive(0);  // It is to begin with the run, as soon as that is on the disk.
  heard[0].handlers.on_closed("its agent has ended");
  arrive(1);
  world.run_until([&heard] { return !heard[1].orders.empty(); });
  CHECK(heard[0].orders.empty());
  CHECK(heard[1].orders.front().generation == 2);
  world.kill();
}

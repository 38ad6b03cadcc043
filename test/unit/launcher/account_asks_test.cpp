// What nodes say before a run is submitted, and what is said of those who say nothing.

#include "launcher/coordinator/account_asks.hpp"

#include <optional>
#include <utility>

#include <catch2/catch.hpp>

#include "launcher/coordinator/requester.hpp"

using namespace sgd;
using namespace std::chrono_literals;
using coordinator::AccountAsks;

TEST_CASE("account asks: all answer, one refuses, and who was not asked counts for nothing") {
  boost::asio::io_context io;
  AccountAsks asks(io);
  std::vector<std::pair<NodeId, cluster::AccountAsk>> sent;
  std::optional<AccountAsks::Answers> answers;
  const auto send = [&](const NodeId& node, const cluster::AccountAsk& ask) { sent.emplace_back(node, ask); };
  asks.ask({"a", "b"}, {0, "eva", true}, send, [&](const AccountAsks::Answers& all) { answers = all; });
  REQUIRE(sent.size() == 2);
  CHECK((sent[0].second.owner == "eva" && sent[0].second.may_be_root));
  const std::int64_t number = sent[0].second.number;
  asks.on_answer("stranger", {number, "no"});
  asks.on_answer("a", {number + 1, "no"});
  asks.on_answer("a", {number, ""});
  asks.on_answer("a", {number, "too late"});
  CHECK_FALSE(answers);
  asks.on_answer("b", {number, "there is no account"});
  REQUIRE(answers);
  CHECK(answers->refusals == std::map<NodeId, std::string>{{"b", "there is no account"}});
  CHECK(answers->silent.empty());
  io.run_for(1s);
  CHECK(io.stopped());  // No timer is left.
}

TEST_CASE("account asks: a node that says nothing is told of as that, and there is a limit; limit kAsksMax") {
  boost::asio::io_context io;
  AccountAsks asks(io);
  std::size_t done = 0;
  std::vector<NodeId> silent;
  const auto note = [&](const AccountAsks::Answers& answers) {
    ++done;
    silent = answers.silent;
  };
  const auto send = [](const NodeId&, const cluster::AccountAsk&) {};
  asks.ask({}, {}, send, note);
  CHECK(done == 1);
  for (std::size_t number = 0; number < AccountAsks::kAsksMax; ++number) asks.ask({"a"}, {}, send, note);
  CHECK(done == 1);
  asks.ask({"b"}, {}, send, note);
  CHECK(done == 2);
  CHECK(silent == std::vector<NodeId>{"b"});
  io.run_for(AccountAsks::kDeadline + 10s);
  CHECK(done == AccountAsks::kAsksMax + 2);
  CHECK(silent == std::vector<NodeId>{"a"});
  asks.ask({"c"}, {}, send, note);
  asks.stop();
  io.restart();
  io.run_for(1s);
  CHECK(done == AccountAsks::kAsksMax + 2);
}

TEST_CASE("requester: root's equals are root at the socket and admins by certificate") {
  using coordinator::Requester;
  CHECK(coordinator::may_be_root({"root", "", "", true, 0}));
  CHECK_FALSE(coordinator::may_be_root({"eva", "", "", true, 1000}));
  CHECK(coordinator::may_be_root({"eva", "0a", "", true, {}}));
  CHECK_FALSE(coordinator::may_be_root({"eva", "0a", "", false, {}}));
  CHECK_FALSE(coordinator::may_be_root({"", "", "", true, {}}));  // Plain text over TCP proves nobody.
}

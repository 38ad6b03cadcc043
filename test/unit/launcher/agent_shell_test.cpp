// The shell of an agent, with a coordinator that says what a test wants.

#include "launcher/agent/agent_shell.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>

#include <catch2/catch.hpp>

#include "launcher/agent/keeper_process.hpp"
#include "launcher/net/embedded_link.hpp"
#include "launcher/process/accept_loop.hpp"
#include "launcher/process/cgroup_leaf.hpp"
#include "launcher/process/clock.hpp"
#include "launcher/process/pidfd.hpp"
#include "launcher/process/process_tree.hpp"
#include "launcher/process/spawn.hpp"
#include "launcher/process/unix_socket.hpp"
#include "test/unit/common/temporary_folder.hpp"

using namespace sgd;
using namespace std::chrono_literals;

namespace {

/// One rank of `true`.
void ask_to_run(cluster::DesiredRun& desired, const std::string& run_dir) {
  desired.want = cluster::Want::kRun;
  desired.run_dir = run_dir;
  desired.world_size = 1;
  desired.ranks = {{0, 0}};
  desired.job =
      nlohmann::json{{"command", {"true"}}, {"per_worker", {{"cpus", 1}}}, {"recovery", {{"max_failures", 0}}}};
}

}  // namespace

TEST_CASE("agent shell: a run that is begun again while it is forgotten keeps what its new life has") {
  const test::TemporaryFolder folder;
  boost::asio::io_context io;
  net::EmbeddedLink link = net::make_embedded_link(io);
  std::vector<cluster::Fact> facts;
  link.coordinator->start({[&](cluster::FromAgent message) {
                             if (auto* fact = std::get_if<cluster::Fact>(&message)) facts.push_back(std::move(*fact));
                           },
                           [](const std::string&) {}});
  core::AgentFacts own;
  own.node = "n";
  own.slots = 1;
  own.incarnation = 1;
  int gone = 0;
  agent::AgentObserver observer;
  observer.on_output = [](const agent::Output&) {};
  observer.on_warning = [](const std::string&) {};
  observer.on_run_gone = [&](const RunId&, bool) { ++gone; };
  // A keeper that ends at once: what counts is that somebody sees it end.
  agent::AgentShell shell(io, own, folder.path("s-"), "/bin/false", std::move(link.agent), std::move(observer));
  REQUIRE(shell.start());
  cluster::DesiredRun desired;
  desired.run = "r";
  desired.generation = 1;
  desired.want = cluster::Want::kGone;
  link.coordinator->send(cluster::ToAgent(desired));
  desired.generation = 2;  // Here before the loop has turned.
  ask_to_run(desired, folder.path("r"));
  link.coordinator->send(cluster::ToAgent(desired));
  for (const TimePoint deadline = process::monotonic_now() + 20s;
       facts.size() < 2 && process::monotonic_now() < deadline;)
    io.run_one_for(100ms);
  CHECK(gone == 1);
  REQUIRE(facts.size() >= 2);
  CHECK(facts[0].generation == 1);
  CHECK(facts[1].run == "r");  // That its keeper could not work: somebody has seen it end.
  CHECK(facts[1].generation == 2);
  shell.stop();
}

TEST_CASE("agent shell: a keeper that could not be started has left nothing that cannot be seen") {
  const test::TemporaryFolder folder;
  boost::asio::io_context io;
  net::EmbeddedLink link = net::make_embedded_link(io);
  bool is_lost = false;
  link.coordinator->start({[&](const cluster::FromAgent& message) {
                             const auto* fact = std::get_if<cluster::Fact>(&message);
                             if (fact != nullptr && std::holds_alternative<cluster::KeeperLost>(fact->body))
                               is_lost = true;
                           },
                           [](const std::string&) {}});
  agent::AgentShell::Persistence persistence;
  persistence.journal_path = folder.path("agent.journal");
  persistence.sockets = folder.path("s-");
  persistence.mark = "SGD_KEEPER=unit-never-" + std::to_string(::getpid()) + "-";
  persistence.wait = 1s;
  persistence.facts.node = "n";
  persistence.facts.slots = 1;
  persistence.facts.incarnation = 1;
  std::vector<std::string> warnings;
  std::vector<bool> gone;
  agent::AgentObserver observer;
  observer.on_output = [](const agent::Output&) {};
  observer.on_warning = [&](const std::string& warning) { warnings.push_back(warning); };
  observer.on_run_gone = [&](const RunId&, bool is_known) { gone.push_back(is_known); };
  agent::AgentShell shell(io, std::move(persistence), folder.path("no-such-program"), std::move(link.agent),
                          std::move(observer), nullptr);
  REQUIRE(shell.start());
  const auto run_until = [&](const auto& done) {
    for (const TimePoint deadline = process::monotonic_now() + 20s; !done() && process::monotonic_now() < deadline;)
      io.run_one_for(100ms);
    return done();
  };
  cluster::DesiredRun desired;
  desired.run = "r";
  desired.generation = 1;
  ask_to_run(desired, folder.path("r"));
  link.coordinator->send(cluster::ToAgent(desired));
  CHECK(run_until([&] { return is_lost; }));
  desired.want = cluster::Want::kGone;
  link.coordinator->send(cluster::ToAgent(desired));
  CHECK(run_until([&] { return !gone.empty(); }));  // What it has left was cleared: else it would not go.
  CHECK(gone == std::vector<bool>{true});
  for (const std::string& warning : warnings) CHECK(warning.find("without a word") == std::string::npos);
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    CHECK(entry.path().filename().string().find("keeper-") == std::string::npos);
  shell.stop();
}

TEST_CASE("agent shell: a keeper's last words are the reason why its run could not start") {
  const test::TemporaryFolder folder;
  const std::string program = folder.write("keeper", "#!/bin/sh\necho 'sgd-launch: error: no way in' >&2\nexit 1\n");
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  boost::asio::io_context io;
  std::string reason;
  std::string said;
  agent::KeeperProcess::Handlers handlers{[](keeper::FromKeeper) {},
                                          [](agent::Output) {},
                                          [&](int, std::string why) { reason = why; },
                                          {},
                                          [&](const std::string& text) { said = text; }};
  agent::KeeperProcess::ReattachOptions place{folder.path("keeper.sock"), "SGD_KEEPER=x", std::chrono::seconds(1)};
  place.cgroup = "sgd-unit-words-" + std::to_string(::getpid());
  agent::KeeperProcess keeper(io, handlers, place);
  REQUIRE(keeper.start(program));
  io.run_for(std::chrono::seconds(20));
  CHECK(reason == "exit code 1: no way in");
  CHECK(said == "sgd-launch: error: no way in\n");
  if (const auto leaf = process::CgroupLeaf::find(place.cgroup)) leaf->remove();
}

TEST_CASE("agent shell: a keeper that stands still and does not end what it is to end is killed") {
  const test::TemporaryFolder folder;
  const std::string program = folder.write("keeper", "#!/bin/sh\nexec sleep 1000\n");
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  boost::asio::io_context io;
  int ended_by = 0;
  agent::KeeperProcess::Handlers handlers{[](keeper::FromKeeper) {}, [](agent::Output) {},
                                          [&](int signal, const std::string&) { ended_by = signal; }};
  agent::KeeperProcess keeper(io, handlers);
  keeper.clear_limit = 50ms;
  REQUIRE(keeper.start(program));
  keeper.send(keeper::Clear{1});
  io.run_for(20s);
  CHECK(ended_by == SIGKILL);
}

namespace {

/// A keeper that does nothing, and can be stopped.
struct StoppableKeeper {
  StoppableKeeper() {
    const std::string program = folder.write("keeper", "#!/bin/sh\nexec sleep 1000\n");
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    keeper.look_interval = 20ms;
    keeper.stopped_limit = 200ms;
    REQUIRE(keeper.start(program));
  }
  ~StoppableKeeper() {
    if (ended_by != 0) return;
    (void)::kill(keeper.pid(), SIGKILL);
    run_until([this] { return ended_by != 0; });
  }
  [[nodiscard]] bool is_stopped() const {
    const auto entry = process::read_process(keeper.pid());
    return entry && entry->stopped;
  }
  bool run_until(const std::function<bool()>& done) {
    for (const TimePoint deadline = process::monotonic_now() + 20s; !done() && process::monotonic_now() < deadline;)
      io.run_one_for(20ms);
    return done();
  }

  test::TemporaryFolder folder;
  boost::asio::io_context io;
  int ended_by = 0;
  std::vector<std::string> told;
  agent::KeeperProcess keeper{io,
                              {[](keeper::FromKeeper) {},
                               [](agent::Output) {},
                               [this](int signal, const std::string&) { ended_by = signal; },
                               {},
                               {},
                               [this](const std::string& what) { told.push_back(what); }}};
};

}  // namespace

TEST_CASE("agent shell: a keeper that a rank has stopped goes on, and that is told once") {
  StoppableKeeper stopped;
  REQUIRE(::kill(stopped.keeper.pid(), SIGSTOP) == 0);
  CHECK(stopped.run_until([&] { return stopped.told.size() == 1 && !stopped.is_stopped(); }));
  REQUIRE(::kill(stopped.keeper.pid(), SIGSTOP) == 0);
  stopped.io.run_for(100ms);
  CHECK(stopped.run_until([&] { return !stopped.is_stopped(); }));
  CHECK(stopped.told.size() == 1);
}

TEST_CASE("agent shell: a keeper that is stopped again and again does not keep its run from its end") {
  StoppableKeeper stopped;
  stopped.keeper.send(keeper::Clear{1});
  CHECK(stopped.run_until([&] {
    if (stopped.ended_by == 0) (void)::kill(stopped.keeper.pid(), SIGSTOP);  // Ignoring: it may have ended.
    return stopped.ended_by != 0;
  }));
  CHECK(stopped.ended_by == SIGKILL);
}

namespace {

/// A process that does nothing, and this test as its keeper's end of the link.
struct PlayedKeeper {
  explicit PlayedKeeper(boost::asio::io_context& io)
      : keeper(io, {[](keeper::FromKeeper) {}, [](agent::Output) {}, [](int, const std::string&) {}}) {
    process::SpawnOptions options;
    options.argv = {"sleep", "1000"};
    auto spawned = process::spawn(options);
    REQUIRE(spawned.ok());
    child = std::move(spawned).value();
    auto pair = process::socket_pair(SOCK_STREAM);
    REQUIRE(pair.ok());
    link = std::move(pair.value().second);
    REQUIRE(keeper.adopt({std::move(pair.value().first), child.pid, "SGD_KEEPER=x"}).ok());
    keeper.clear_limit = 50ms;
  }
  ~PlayedKeeper() {
    (void)process::pidfd_send_signal(child.pidfd.get(), SIGKILL);
    process::reap_child(child.pid);
  }
  void say(const keeper::FromKeeper& message) const {
    const std::string frame = keeper::encode(message);
    REQUIRE(::write(link.get(), frame.data(), frame.size()) == static_cast<ssize_t>(frame.size()));
  }
  [[nodiscard]] bool is_killed_within(boost::asio::io_context& io, Duration limit) const {
    pollfd ended{child.pidfd.get(), POLLIN, 0};
    const TimePoint deadline = process::monotonic_now() + limit;
    while (::poll(&ended, 1, 0) == 0 && process::monotonic_now() < deadline) {
      io.restart();
      io.run_one_for(20ms);
    }
    return ::poll(&ended, 1, 0) == 1;
  }

  agent::KeeperProcess keeper;
  process::Child child;
  process::UniqueFd link;
};

}  // namespace

TEST_CASE("agent shell: a keeper that has answered is not killed, however late its agent hears it") {
  boost::asio::io_context io;
  const auto played = std::make_unique<PlayedKeeper>(io);
  played->keeper.send(keeper::Clear{1});
  played->say(keeper::Cleared{1, 0});
  (void)::poll(nullptr, 0, 100);  // The agent stands still meanwhile.
  CHECK_FALSE(played->is_killed_within(io, 1500ms));
  // The end of ranks that crossed the order to close is no answer to it.
  played->keeper.send(keeper::Clear{2});
  played->keeper.send(keeper::Close{});
  played->say(keeper::Cleared{2, 0});
  CHECK(played->is_killed_within(io, 20s));
}

TEST_CASE("agent shell: a keeper's answer that is taken when its time has run out counts") {
  const test::TemporaryFolder folder;
  boost::asio::io_context io;
  process::SpawnOptions options;
  options.argv = {"sleep", "1000"};
  const auto child = process::spawn(options);
  REQUIRE(child.ok());
  agent::KeeperProcess::Handlers handlers{[](keeper::FromKeeper) {}, [](agent::Output) {},
                                          [](int, const std::string&) {}};
  agent::KeeperProcess::ReattachOptions place{folder.path("keeper.sock"), "SGD_KEEPER=x", 1s};
  const auto listener = process::listen_unix(place.socket);
  REQUIRE(listener.ok());
  agent::KeeperProcess keeper(io, handlers, place);
  keeper.attach_limit = 0s;
  REQUIRE(keeper.resume());
  const auto link = process::accept_one(listener.value().get());
  REQUIRE(link.ok());
  const std::string frame = keeper::encode(keeper::FromKeeper(keeper::Started{child.value().pid}));
  REQUIRE(::write(link.value().get(), frame.data(), frame.size()) == static_cast<ssize_t>(frame.size()));
  io.poll();
  CHECK(keeper.is_attached());
  (void)process::pidfd_send_signal(child.value().pidfd.get(), SIGKILL);
  process::reap_child(child.value().pid);
}

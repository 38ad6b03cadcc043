// A coordinator with a store over several lives, with nodes that live on: nothing is acknowledged or written before it
// is committed, and no line is lost or doubled.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <set>

#include <fmt/format.h>
#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include "common/job/load.hpp"
#include "full_disk.hpp"
#include "launcher/coordinator/coordinator_shell.hpp"
#include "launcher/coordinator/run_retention.hpp"
#include "launcher/net/embedded_link.hpp"
#include "scripted_agent.hpp"
#include "state_folder.hpp"

using namespace sgd;
using namespace std::chrono_literals;
using coordinator::CoordinatorShell;
using test::lines_of;

namespace {

/// An agent's link that is plugged into one coordinator after the other.
class PlugLink : public net::AgentLink {
 public:
  void start(Handlers handlers) override {
    handlers_ = std::move(handlers);
    if (inner_) inner_->start(handlers_);
  }
  void send(cluster::FromAgent message) override {
    if (inner_) inner_->send(std::move(message));
  }
  void on_refused(const std::string& reason) override {
    if (inner_) inner_->on_refused(reason);
  }
  void plug(std::unique_ptr<net::AgentLink> inner) {
    inner_ = std::move(inner);
    if (inner_ && handlers_.on_message) inner_->start(handlers_);
  }

 private:
  std::unique_ptr<net::AgentLink> inner_;
  Handlers handlers_;
};

class World {
 public:
  explicit World(int nodes = 2, int slots = 2) {
    for (int index = 0; index < nodes; ++index) {
      auto link = std::make_unique<PlugLink>();
      links_.push_back(link.get());
      agents_.push_back(std::make_unique<test::ScriptedAgent>(io_, std::move(link), node(index), slots,
                                                              static_cast<Incarnation>(index + 7),
                                                              [this](const RunId&) { return script; }));
      agents_.back()->start();
    }
  }
  ~World() {
    for (auto& agent : agents_) agent->stop();
    shell_.reset();
  }

  /// A new life: what the former one had to commit is committed, what follows from it is not carried out.
  void restart() {
    shell_.reset();
    for (PlugLink* link : links_) link->plug(nullptr);
    shell_ = std::make_unique<CoordinatorShell>(
        io_, core::CoordinatorSettings{.node_timeout = 5s, .finished_max = finished_max});
    shell_->cut_after = cut_after;
    const Status opened =
        shell_->open_store(folder.state(), {[this](const std::string& text) { troubles.push_back(text); }, {}});
    REQUIRE(opened.ok());
    const Status restored = shell_->restore([this](const core::RunDefinition& run) { return observer(run.id); });
    INFO((restored ? "" : restored.error().message));
    REQUIRE(restored.ok());
    connect();
  }
  /// Nobody writes to its files any more.
  void kill() { shell_.reset(); }
  void connect() {
    for (std::size_t index = 0; index < links_.size(); ++index) {
      net::EmbeddedLink link = net::make_embedded_link(io_);
      shell_->add_agent(node(static_cast<int>(index)), std::move(link.coordinator));
      links_[index]->plug(std::move(link.agent));
    }
  }
  void submit(const RunId& id, const std::string& request_id = "", int workers = 2) {
    core::RunDefinition run;
    run.id = id;
    run.request_id = request_id;
    run.run_dir = folder.run(id);
    run.job = *job::load_resolved({{"name", "job"},
                                   {"num_workers", workers},
                                   {"training",
                                    {{"batch_size", 8},
                                     {"loss", "mse"},
                                     {"model", {{"type", "linear"}}},
                                     {"dataset", {{"type", "linear"}}}}}})
                   .job;
    auto directory = storage::RunDirectory::create({id, run.run_dir}, run.job.resolved);
    REQUIRE(directory.ok());
    shell_->submit(std::move(run), std::move(directory).value(), observer(id), [this](const Result<RunId>& result) {
      accepted.push_back(result ? result.value() : "refused: " + result.error().message);
    });
  }
  template <class Done>
  void run_until(const Done& done) {
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    while (!done()) {
      REQUIRE(std::chrono::steady_clock::now() < deadline);
      if (io_.stopped()) io_.restart();
      io_.run_one_for(10ms);
    }
  }
  /// Hands over what is under way: acknowledgements of commits that have been made.
  void deliver() {
    if (io_.stopped()) io_.restart();
    while (io_.poll() > 0) {
    }
  }
  void run_until_idle() {
    run_until([this] { return shell_->is_idle(); });
  }
  /// That are whole: the coordinator may be writing one more.
  [[nodiscard]] std::size_t lines(const RunId& id, const char* file) const {
    std::ifstream text(folder.run(id) + "/" + file);
    return static_cast<std::size_t>(
        std::count(std::istreambuf_iterator<char>(text), std::istreambuf_iterator<char>(), '\n'));
  }
  [[nodiscard]] CoordinatorShell& shell() { return *shell_; }
  [[nodiscard]] boost::asio::io_context& io() { return io_; }
  [[nodiscard]] std::uint64_t stored_events() {
    shell_.reset();
    auto store = storage::EventStore::open(folder.state());
    REQUIRE(store.ok());
    REQUIRE(store.value()->load([](TimePoint, core::CoordinatorEvent&&) {}).ok());
    return store.value()->events();
  }
  [[nodiscard]] std::int64_t acknowledged() const {
    std::int64_t sum = 0;
    for (const auto& agent : agents_) sum += agent->acknowledged();
    return sum;
  }

  test::StateFolder folder;
  std::size_t finished_max = 1000;
  test::Script script;
  CoordinatorShell::CutAfter cut_after;
  std::vector<std::string> troubles;
  std::vector<std::string> warnings;
  std::vector<std::string> accepted;
  std::map<RunId, int> told;  ///< Events and metrics that observers saw, in all lives.

 private:
  static NodeId node(int index) { return fmt::format("node{}", index); }
  coordinator::RunObserver observer(const RunId& id) {
    return {[this, id](const nlohmann::ordered_json&) { ++told[id]; },
            [this, id](const nlohmann::ordered_json&) { ++told[id]; },
            [this](const std::string& text) { warnings.push_back(text); },
            {},
            [](const core::RunOutcome&) {}};
  }

  boost::asio::io_context io_{1};
  std::vector<PlugLink*> links_;
  std::vector<std::unique_ptr<test::ScriptedAgent>> agents_;
  std::unique_ptr<CoordinatorShell> shell_;
};

/// Each report once and in order, each fact of each rank once, one beginning and one end.
void check_whole(const World& world, const RunId& id, std::size_t generations = 1) {
  INFO("run " << id);
  const auto metrics = lines_of(world.folder.run(id) + "/metrics.jsonl");
  CHECK(metrics.size() == static_cast<std::size_t>(world.script.lines()));
  for (std::size_t index = 0; index < metrics.size(); ++index)
    CHECK(metrics[index].at("_training_iteration") == index + 1);
  std::map<std::string, int> count;
  std::set<std::string> once;
  for (const auto& event : lines_of(world.folder.run(id) + "/events.jsonl")) {
    const std::string name = event.at("event");
    ++count[name];
    if (name.starts_with("worker_"))
      CHECK(once.insert(fmt::format("{} {} {}", name, event.at("generation").dump(), event.at("rank").dump())).second);
  }
  CHECK(count["run_started"] == 1);
  CHECK(count["run_finished"] == 1);
  CHECK(count["epoch_finished"] == world.script.epochs);
  CHECK(count["failure"] == static_cast<int>(generations) - 1);
  CHECK(std::filesystem::exists(world.folder.run(id) + "/summary.json"));
}

}  // namespace

TEST_CASE("coordinator with a store: a run over many lives is the run of one life") {
  World world;
  world.script.epochs = 3;
  world.script.window = 2;
  world.restart();
  SECTION("without a failure") {
    world.submit("run");
  }
  SECTION("with a rank that is killed") {
    world.script.killed_after = 12;
    world.submit("run");
  }
  int lives = 1;
  for (int target = 5; !world.shell().is_idle(); target += 5) {
    world.run_until([&] { return world.acknowledged() >= target || world.shell().is_idle(); });
    if (world.shell().is_idle()) break;
    world.restart();
    ++lives;
  }
  CHECK(lives > 5);
  check_whole(world, "run", world.script.killed_after >= 0 ? 2 : 1);
  // None twice; what a kill has left written and untold is in the files, which whoever comes back reads.
  CHECK(world.told["run"] <=
        static_cast<int>(world.lines("run", "events.jsonl") + world.lines("run", "metrics.jsonl")));
  CHECK(world.warnings.empty());
  const auto rows = world.shell().runs();
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].state == "succeeded");
  CHECK(rows[0].exit_code == 0);
  CHECK(rows[0].wall_s > 0);
}

TEST_CASE("coordinator with a store: what a kill has left of the files is made whole") {
  World world;
  world.script.epochs = 3;
  world.restart();
  world.submit("run");
  world.run_until([&] { return world.acknowledged() >= 30; });
  world.kill();
  const std::string events = world.folder.run("run") + "/events.jsonl";
  const std::string metrics = world.folder.run("run") + "/metrics.jsonl";
  const auto lines = world.lines("run", "metrics.jsonl");
  SECTION("a torn last line") {
    std::filesystem::resize_file(events, std::filesystem::file_size(events) - 10);
    std::ofstream(metrics, std::ios::app) << "{\"phase\": \"tr";
  }
  SECTION("no metrics") {
    std::filesystem::resize_file(metrics, 0);
  }
  SECTION("zeros where lines were, as after a power failure") {
    std::fstream file(metrics, std::ios::in | std::ios::out);
    file.seekp(300);
    file << std::string(100, '\0');
  }
  SECTION("no folder at all") {
    std::filesystem::remove_all(world.folder.run("run"));
  }
  world.restart();
  world.run_until([&] { return world.lines("run", "metrics.jsonl") >= lines; });
  world.run_until_idle();
  check_whole(world, "run");
}

TEST_CASE("coordinator with a store: nothing is acknowledged, written or accepted before it is committed") {
  World world;
  world.restart();
  world.submit("first");
  world.run_until([&] { return world.acknowledged() >= 4; });
  auto full = std::make_unique<test::FullDisk>();
  world.submit("second", "request");
  world.run_until([&] { return !world.troubles.empty(); });
  world.deliver();
  const auto go_on = [&world] {
    const auto later = std::chrono::steady_clock::now() + 300ms;
    world.run_until([&] { return std::chrono::steady_clock::now() > later; });
  };
  go_on();  // Lines of what was committed before are written beside the event loop.
  const auto acknowledged = world.acknowledged();
  const auto events = world.lines("first", "events.jsonl");
  const auto accepted = world.accepted;
  // The agents go on meanwhile, and nothing of that shows.
  go_on();
  CHECK(world.acknowledged() == acknowledged);
  CHECK(world.lines("first", "events.jsonl") == events);
  CHECK(world.lines("second", "events.jsonl") == 0);
  CHECK(world.accepted == accepted);
  full.reset();
  world.run_until_idle();
  CHECK(world.accepted == std::vector<std::string>{"first", "second"});
  check_whole(world, "first");
  check_whole(world, "second");
}

TEST_CASE("coordinator with a store: the same request makes one run, in every life") {
  World world;
  world.restart();
  world.submit("one", "request");
  world.submit("two", "request");  // Before the first is committed.
  world.submit("three", "other");
  world.run_until([&] { return world.accepted.size() == 3; });
  CHECK(world.accepted == std::vector<std::string>{"one", "one", "three"});
  world.restart();
  world.submit("four", "request");
  world.run_until_idle();
  world.restart();  // Cuts the log.
  world.submit("five", "request");
  world.run_until([&] { return world.accepted.size() == 5; });
  CHECK(world.accepted[3] == "one");
  CHECK(world.accepted[4] == "one");
  CHECK(world.lines("two", "events.jsonl") == 0);
  CHECK(world.shell().runs().size() == 2);
  CHECK(world.shell().run_of_request("other") == "three");
  CHECK_FALSE(world.shell().run_of_request("").has_value());
}

TEST_CASE("coordinator with a store: when all have ended the log is cut, and nodes are still known") {
  World world;
  world.restart();
  world.submit("one");
  world.run_until_idle();
  world.restart();
  CHECK(world.shell().runs().size() == 1);
  CHECK(world.shell().nodes().size() == 2);
  world.submit("two");  // The same agents: their facts count on.
  world.run_until_idle();
  check_whole(world, "one");
  check_whole(world, "two");
  world.restart();
  world.run_until_idle();
  const auto rows = world.shell().runs();
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].id == "one");
  CHECK(rows[1].id == "two");
  CHECK(rows[1].summary.find("\"state\":\"succeeded\"") != std::string::npos);
  CHECK(world.stored_events() < 1010);
}

TEST_CASE("coordinator with a store: a run that was removed does not come back at the next start") {
  World world;
  SECTION("while its events are in the log") {}
  SECTION("when the log was cut") {
    world.cut_after = {10, 30, 1 << 20};
  }
  world.restart();
  for (const char* run : {"gone", "kept"}) world.submit(run);
  world.run_until_idle();
  std::filesystem::remove_all(world.folder.run("gone"));
  world.shell().forget_run("gone");
  world.run_until_idle();
  for (int life = 0; life < 2; ++life) {
    world.restart();
    world.run_until_idle();
    REQUIRE(world.shell().runs().size() == 1);
    CHECK(world.shell().runs().front().id == "kept");
    CHECK_FALSE(std::filesystem::exists(world.folder.run("gone")));
  }
  check_whole(world, "kept");
  world.submit("gone");  // The name is free again.
  world.run_until_idle();
  check_whole(world, "gone");
  CHECK(world.warnings.empty());
}

TEST_CASE("coordinator with a store: the log is cut in a long life, too") {
  World world;
  world.restart();
  world.script.pace = 10us;
  for (int number = 0; number < 20; ++number) {
    world.submit(fmt::format("run{:02}", number));
    world.run_until_idle();
  }
  for (int number = 0; number < 20; ++number) check_whole(world, fmt::format("run{:02}", number));
  CHECK(world.stored_events() < world.cut_after.idle_events + 100);
}

TEST_CASE("coordinator with a store: the log is cut under live runs, in every life, and no line is lost or doubled") {
  World world;
  world.script.epochs = 40;
  world.script.pace = 4ms;
  world.cut_after = {10, 30, 1 << 20};
  SECTION("without a failure") {}
  SECTION("with a rank that is killed") {
    world.script.killed_after = 12;
  }
  world.restart();
  world.submit("run");
  world.submit("other", "", 1);
  std::uint64_t most = 0;
  int lives = 1;
  for (int target = 20; !world.shell().is_idle(); target += 20, ++lives) {
    // The nodes wait for a cut that takes long, so that their runs do not end before it.
    world.run_until([&] {
      const bool is_short = world.shell().log_length() < 40;
      world.script.window = is_short ? 8 : 0;
      return (world.acknowledged() >= target && is_short) || world.shell().is_idle();
    });
    if (world.shell().is_idle()) break;
    most = std::max(most, world.stored_events());
    world.restart();
  }
  CHECK(lives > 1);
  CHECK(most < 100);
  world.restart();
  world.run_until_idle();
  CHECK(world.warnings.empty());
  CHECK(world.troubles.empty());
  for (const char* run : {"run", "other"}) {
    CHECK(world.told[run] <= static_cast<int>(world.lines(run, "events.jsonl") + world.lines(run, "metrics.jsonl")));
    check_whole(world, run, world.script.killed_after >= 0 ? 2 : 1);
  }
}

TEST_CASE("coordinator with a store: when too much waits for the disk, nothing more is taken, and then it goes on") {
  World world;
  world.restart();
  world.submit("run");
  world.run_until([&] { return world.acknowledged() >= 4; });
  auto full = std::make_unique<test::FullDisk>();
  for (std::size_t number = 0; number <= storage::EventStore::kQueueMax; ++number)
    world.shell().request_stop("other", {});
  CHECK(world.shell().is_held());
  world.submit("refused");
  CHECK(world.lines("refused", "events.jsonl") == 0);
  // What was committed before the disk was full is acknowledged by then.
  world.run_until([&] { return !world.troubles.empty(); });
  world.deliver();
  const auto acknowledged = world.acknowledged();
  world.run_until([&] { return world.troubles.size() >= 2; });
  CHECK(world.acknowledged() == acknowledged);
  full.reset();
  world.run_until([&] { return !world.shell().is_held(); });
  world.connect();  // As agents dial again.
  world.run_until_idle();
  check_whole(world, "run");
  REQUIRE(world.accepted.size() == 2);
  CHECK(world.accepted[1] == "refused: the coordinator cannot write its state at the moment: try again later");
}

TEST_CASE(
    "who may touch a run's files is remembered as long as they are there, over all lives and whatever is forgotten") {
  World world(3);
  world.finished_max = 1;
  world.restart();
  for (const char* id : {"run-1", "run-2", "run-3"}) {
    world.submit(id);
    world.run_until_idle();
  }
  const auto check = [&] {
    for (const char* id : {"run-1", "run-2", "run-3"}) {
      std::set<NodeId> had;
      for (const auto& event : lines_of(world.folder.run(id) + "/events.jsonl"))
        if (event.at("event") == "worker_started") had.insert(event.at("node").get<std::string>());
      CHECK(!had.empty());
      CHECK(had.size() < 3);
      CHECK(world.shell().nodes_of(id) == had);
      for (const char* node : {"node0", "node1", "node2"})
        CHECK(world.shell().may_touch(id, node) == had.contains(node));
      CHECK_FALSE(world.shell().may_touch(id, "stranger"));
    }
    CHECK_FALSE(world.shell().may_touch("nobody's", "node0"));
  };
  check();
  for (int life = 0; life < 3; ++life) {
    world.restart();
    check();
  }
}

TEST_CASE("retention: when many runs have ended the next look does not wait for its time") {
  World world;
  world.restart();
  for (const char* id : {"one", "two", "three"}) world.submit(id);
  world.run_until_idle();
  storage::FileThread files(world.io());
  const auto is_over = [&](const RunId& run) { return world.shell().is_over(run); };
  coordinator::RunRetention retention(world.io(), world.shell(), files, world.folder.file("runs"), is_over,
                                      [](const std::string&) {});
  retention.retention = {1, {}, {}};
  for (std::size_t ended = 1; ended < coordinator::RunRetention::kEndedMax; ++ended) retention.note_ended();
  world.deliver();
  CHECK(retention.known().empty());
  retention.note_ended();
  world.run_until([&] { return world.shell().runs().size() == 1; });
  CHECK(world.shell().runs().front().id == "three");
  retention.stop();
}

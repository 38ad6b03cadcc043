#pragma once
// A coordinator with a store over several lives, and nodes that live on.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include "common/job/load.hpp"
#include "launcher/coordinator/coordinator_shell.hpp"
#include "launcher/net/embedded_link.hpp"
#include "scripted_agent.hpp"
#include "state_folder.hpp"

namespace sgd::test {

using namespace std::chrono_literals;
using coordinator::CoordinatorShell;

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
      agents_.push_back(std::make_unique<ScriptedAgent>(io_, std::move(link), node(index), slots,
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
    for (std::size_t index = 0; index < links_.size(); ++index) plug(static_cast<int>(index));
  }
  void plug(int index) {
    net::EmbeddedLink link = net::make_embedded_link(io_);
    shell_->add_agent(node(index), std::move(link.coordinator));
    links_[static_cast<std::size_t>(index)]->plug(std::move(link.agent));
  }
  /// The node is not heard until plug(), and hears nothing.
  void unplug(int index) { links_[static_cast<std::size_t>(index)]->plug(nullptr); }
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
  /// Of trials of one rank, two at a time.
  void submit_experiment(const RunId& id, int trials = 2) {
    const nlohmann::json job = {
        {"name", "search"},
        {"num_workers", 1},
        {"training",
         {{"batch_size", 8}, {"loss", "mse"}, {"model", {{"type", "linear"}}}, {"dataset", {{"type", "linear"}}}}},
        {"tune",
         {{"parameters", {{"training.seed", {{"randint", {1, 100}}}}}},
          {"metric", "train_loss"},
          {"mode", "min"},
          {"samples", trials},
          {"concurrent", 2}}}};
    core::RunDefinition run;
    run.id = id;
    run.run_dir = folder.run(id);
    run.base = core::TrialBase{job, "/"};
    run.job = *job::load_given(job, "/", {}).job;
    auto directory = storage::RunDirectory::create({id, run.run_dir}, run.job.resolved);
    REQUIRE(directory.ok());
    shell_->submit(std::move(run), std::move(directory).value(), observer(id));
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

  StateFolder folder;
  std::size_t finished_max = 1000;
  Script script;
  CoordinatorShell::CutAfter cut_after;
  std::vector<std::string> troubles;
  std::vector<std::string> warnings;
  std::vector<std::string> accepted;
  std::map<RunId, int> told;   ///< Events and metrics that observers saw, in all lives.
  std::map<RunId, int> ended;  ///< How often its end was told.
  std::function<void(const RunId& run)> on_ended;
  bool is_settled_later = false;  ///< Ends wait for CoordinatorShell::settle().

 private:
  static NodeId node(int index) { return fmt::format("node{}", index); }
  coordinator::RunObserver observer(const RunId& id) {
    return {[this, id](const nlohmann::ordered_json&) { ++told[id]; },
            [this, id](const nlohmann::ordered_json&) { ++told[id]; },
            [this](const std::string& text) { warnings.push_back(text); },
            {},
            [this, id](const core::RunOutcome&) {
              ++ended[id];
              if (on_ended) on_ended(id);
            },
            is_settled_later};
  }

  boost::asio::io_context io_{1};
  std::vector<PlugLink*> links_;
  std::vector<std::unique_ptr<ScriptedAgent>> agents_;
  std::unique_ptr<CoordinatorShell> shell_;
};

}  // namespace sgd::test

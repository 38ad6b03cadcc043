// What bounds the coordinator's state: nodes and live runs over many events, with the log cut as the daemon cuts it.
// Prints the size of the store, the time of a restart, of `ps` and `nodes`, and the longest that one event held the
// loop. state_bench [nodes] [runs] [events] [folder]

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "common/job/load.hpp"
#include "launcher/core/coordinator.hpp"
#include "launcher/storage/event_store.hpp"

using namespace sgd;
using Clock = std::chrono::steady_clock;

namespace {

constexpr std::uint64_t kCutAfter = 20'000;  ///< As CoordinatorShell::CutAfter.
constexpr int kRanks = 4;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

class Bench {
 public:
  Bench(int nodes, int runs, std::string folder) : nodes_(nodes), runs_(runs), folder_(std::move(folder)) {
    std::filesystem::remove_all(folder_);
    store_ = std::move(storage::EventStore::open(folder_).value());
    storage::EventStore::Handlers handlers;
    handlers.on_committed = [this](storage::EventStore::Ticket up_to) { note([&] { committed_ = up_to; }); };
    handlers.on_cut = [this](Result<std::shared_ptr<const storage::StateCut>> cut) {
      note([&] { cut_ = std::move(cut); });
    };
    store_->start(std::move(handlers));
  }

  void fill() {
    const job::JobSpec job =
        *job::load_resolved(nlohmann::json::parse(R"({"name": "job", "num_workers": 4, "training": {
        "batch_size": 8, "epochs": 100000, "loss": "mse", "model": {"type": "linear"}, "dataset": {"type": "linear"}}})"))
             .job;
    for (int node = 0; node < nodes_; ++node) {
      cluster::NodeState state;
      state.node = fmt::format("node{:05}", node);
      state.incarnation = static_cast<Incarnation>(node + 1);
      state.address = "10.0.0.1";
      state.slots = kRanks;
      state.cpus = 64;
      state.labels = {{"gpu", "h100"}, {"zone", "a"}};
      state.is_new_link = true;
      take(core::coordinator_event::FromAgent{state.node, state});
    }
    for (int run = 0; run < runs_; ++run) {
      core::RunDefinition definition;
      definition.id = fmt::format("job-20261121-101500-{:04x}", run);
      definition.run_dir = "/runs/" + definition.id;
      definition.job = job;
      definition.owner = fmt::format("owner{}", run % 20);
      take(core::coordinator_event::Submitted{std::move(definition)});
    }
    for (const RunId& id : machine_.runs())
      for (const auto& [rank, record] : machine_.state().runs_.at(id).state().ranks_)
        tell(id, cluster::WorkerReady{rank, {}});
    longest_ = {};
  }

  /// Reports of all ranks of one run after the other.
  void play(std::uint64_t events) {
    std::vector<RunId> ids = machine_.runs();
    for (std::int64_t step = 1; played_ < events; ++step) {
      for (const RunId& id : ids) {
        for (Rank rank = 0; rank < kRanks; ++rank) {
          link::Report report{
              {static_cast<int>(step), "train", step, 0},
              step,
              {{"train_loss", 1.0 / static_cast<double>(step)}, {"num_samples", 1024}, {"step_ms", 3.21}}};
          tell(id, cluster::Report{rank, std::move(report)});
        }
      }
    }
  }

  void ask() {
    double ps = 0;
    double nodes = 0;
    for (int round = 0; round < 5; ++round) {
      auto begin = Clock::now();
      for (const RunId& id : machine_.runs()) (void)core::to_json(*machine_.snapshot(now(), id));
      ps = std::max(ps, seconds_since(begin));
      begin = Clock::now();
      for (const core::NodeSnapshot& node : machine_.nodes()) (void)core::to_json(node, now());
      nodes = std::max(nodes, seconds_since(begin));
    }
    fmt::print("ps of {} live runs {:.3f} s, nodes of {} {:.3f} s (the slowest of 5)\n", runs_, ps, nodes_, nodes);
  }

  void restart() {
    wait([this] { return committed_ >= last_ticket_; });
    store_.reset();
    const double bytes = static_cast<double>(std::filesystem::file_size(folder_ + "/coordinator.db"));
    const auto begin = Clock::now();
    auto store = std::move(storage::EventStore::open(folder_).value());
    auto state = store->load_state();
    SGD_ASSERT(state.ok());
    core::Coordinator again(settings_, std::move(state).value());
    const double read_s = seconds_since(begin);
    core::CoordinatorCommands commands;
    const Status loaded = store->load([&](TimePoint at, core::CoordinatorEvent&& event) {
      again.replay(at, event, commands);
      commands.clear();
    });
    SGD_ASSERT(loaded.ok());
    SGD_ASSERT(again.state().nodes_.size() == machine_.state().nodes_.size());
    fmt::print(
        "restart: {:.2f} s ({:.2f} s the state, {} events after it); coordinator.db {:.1f} MB, at most {:.1f} MB\n",
        seconds_since(begin), read_s, store->events(), bytes / 1e6, most_bytes_ / 1e6);
  }

  void report(double wall_s) const {
    fmt::print(
        "{} events in {:.1f} s ({:.0f}/s), {} cuts; one event held the loop {:.2f} ms at most, p99.9 {:.2f} ms\n",
        played_, wall_s, static_cast<double>(played_) / wall_s, cuts_, to_seconds(longest_) * 1e3,
        to_seconds(held_[held_.size() - 1 - held_.size() / 1000]) * 1e3);
  }
  void settle() { std::sort(held_.begin(), held_.end()); }

 private:
  static TimePoint now() { return Clock::now(); }
  void tell(const RunId& run, cluster::FactBody body) {
    const auto& ranks = machine_.state().runs_.at(run).state().ranks_;
    const NodeId node = ranks.begin()->second.node;
    const auto& known = machine_.state().nodes_.at(node);
    take(core::coordinator_event::FromAgent{
        node, cluster::Fact{known.incarnation, known.last_fact + 1, run, 1, std::move(body)}});
    ++played_;
  }
  /// As the shell does: the machine, the store, and a cut when the log is long.
  void take(const core::CoordinatorEvent& event) {
    const auto begin = Clock::now();
    core::CoordinatorCommands commands;
    machine_.on(now(), event, commands);
    for (const core::CoordinatorCommand& command : commands)
      if (const auto* stored = std::get_if<core::coordinator_command::Store>(&command))
        last_ticket_ = store_->append(stored->at, stored->event);
    note_cut();
    if (!is_cutting_ && store_->events() > kCutAfter) {
      is_cutting_ = true;
      const std::uint64_t behind = last_ticket_ - committed();
      store_->compact(store_->last_event() - std::min<std::uint64_t>(behind, kCutAfter), settings_);
    }
    const Duration held = Clock::now() - begin;
    longest_ = std::max(longest_, held);
    held_.push_back(held);
    if (store_->is_full()) wait([this] { return store_->has_room(); });
  }
  void note_cut() {
    std::optional<Result<std::shared_ptr<const storage::StateCut>>> cut;
    {
      const std::lock_guard lock(mutex_);
      cut.swap(cut_);
    }
    if (!cut) return;
    SGD_ASSERT(cut->ok());
    store_->begin_behind(*cut->value());
    is_cutting_ = false;
    ++cuts_;
    most_bytes_ = std::max(most_bytes_, static_cast<double>(std::filesystem::file_size(folder_ + "/coordinator.db")));
  }
  [[nodiscard]] storage::EventStore::Ticket committed() {
    const std::lock_guard lock(mutex_);
    return committed_;
  }
  template <class Change>
  void note(const Change& change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }
  template <class Done>
  void wait(const Done& done) {
    std::unique_lock lock(mutex_);
    while (!done()) changed_.wait_for(lock, std::chrono::milliseconds(10));
  }

  int nodes_;
  int runs_;
  std::string folder_;
  core::CoordinatorSettings settings_{std::chrono::hours(24)};
  core::Coordinator machine_{settings_};
  std::unique_ptr<storage::EventStore> store_;
  std::uint64_t played_ = 0;
  int cuts_ = 0;
  bool is_cutting_ = false;
  double most_bytes_ = 0;
  Duration longest_{};
  std::vector<Duration> held_;
  storage::EventStore::Ticket last_ticket_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  storage::EventStore::Ticket committed_ = 0;
  std::optional<Result<std::shared_ptr<const storage::StateCut>>> cut_;
};

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int index, int otherwise) { return argc > index ? std::stoi(argv[index]) : otherwise; };
  const std::string folder = argc > 4 ? argv[4] : "state-bench";
  {
    Bench bench(number(1, 10'000), number(2, 1000), folder);
    bench.fill();
    const auto begin = Clock::now();
    bench.play(static_cast<std::uint64_t>(number(3, 1'000'000)));
    const double wall_s = seconds_since(begin);
    bench.settle();
    bench.report(wall_s);
    bench.ask();
    bench.restart();
  }
  std::filesystem::remove_all(folder);
}

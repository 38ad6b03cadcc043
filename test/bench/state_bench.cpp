// What bounds the coordinator's state: nodes and live runs over many events, with the log cut as the daemon cuts it.
// Prints the size of the store and the time of a restart at a tenth, three tenths and the whole, the longest that one
// event held the loop, and what its machine takes for `ps` and `nodes`.
// state_bench [nodes] [runs] [events] [folder] [events a second; 0: as fast as it can]
// state_bench --check: a small one, in which events wait for cuts; it fails when the store grows with its events.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <unistd.h>

#include <fmt/format.h>

#include "common/base/assert.hpp"
#include "common/job/load.hpp"
#include "launcher/core/coordinator.hpp"
#include "launcher/storage/database.hpp"
#include "launcher/storage/event_store.hpp"

using namespace sgd;
using Clock = std::chrono::steady_clock;

namespace {

constexpr std::uint64_t kCutAfter = 20'000;  ///< As CoordinatorShell::CutAfter.
constexpr int kRanks = 4;

struct Size {
  int nodes = 10'000;
  int runs = 1000;
  std::uint64_t events = 1'000'000;
  double events_per_s = 8000;  ///< As many as one loop takes over links; 0: as fast as it can.
  std::uint64_t cut_after = kCutAfter;
  bool waits_for_cuts = false;
};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

Duration thread_cpu() {
  timespec used{};
  (void)::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

class Bench {
 public:
  Bench(const Size& size, std::string folder)
      : size_(size), nodes_(size.nodes), runs_(size.runs), folder_(std::move(folder)) {
    std::filesystem::remove_all(folder_);
    store_ = std::move(storage::EventStore::open(folder_).value());
    start();
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
    longest_ = longest_cpu_ = {};
  }

  /// Reports of all ranks of one run after the other.
  void play(std::uint64_t events) {
    const std::vector<RunId> ids = machine_.runs();
    const auto begin = Clock::now();
    const std::uint64_t before = played_;
    for (; played_ < events; ++step_) {
      const std::int64_t step = step_;
      for (const RunId& id : ids) {
        for (Rank rank = 0; rank < kRanks; ++rank) {
          link::Report report{
              {static_cast<int>(step), "train", step, 0},
              step,
              {{"train_loss", 1.0 / static_cast<double>(step)}, {"num_samples", 1024}, {"step_ms", 3.21}}};
          tell(id, cluster::Report{rank, std::move(report)});
        }
        if (size_.events_per_s <= 0) continue;
        const std::chrono::duration<double> due(static_cast<double>(played_ - before) / size_.events_per_s);
        std::unique_lock lock(mutex_);
        pace_.wait_until(lock, begin + std::chrono::duration_cast<Clock::duration>(due));
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
      for (const core::NodeSnapshot& node : machine_.nodes()) (void)core::to_text(node, "connected", now());
      nodes = std::max(nodes, seconds_since(begin));
    }
    fmt::print("ps of {} live runs {:.3f} s, nodes of {} {:.3f} s (the slowest of 5)\n", runs_, ps, nodes_, nodes);
  }

  /// As a kill: what is committed is there, and the machine is made of it anew.
  void restart() {
    wait([this] { return committed_ >= last_ticket_; });
    store_.reset();
    const double bytes = bytes_there();
    const auto begin = Clock::now();
    store_ = std::move(storage::EventStore::open(folder_).value());
    auto state = store_->load_state();
    SGD_ASSERT(state.ok());
    core::Coordinator again(settings_, std::move(state).value());
    const double read_s = seconds_since(begin);
    core::CoordinatorCommands commands;
    const Status loaded = store_->load([&](TimePoint at, core::CoordinatorEvent&& event) {
      again.replay(at, event, commands);
      commands.clear();
    });
    SGD_ASSERT(loaded.ok());
    SGD_ASSERT(again.state().nodes_.size() == machine_.state().nodes_.size());
    fmt::print(
        "after {:>7} events: {:.1f} MB (at most {:.1f} MB), {} rows of states, {} of events; restart {:.2f} s ({:.2f} "
        "s the state, {} events "
        "after it)\n",
        played_, bytes / 1e6, most_bytes_ / 1e6, rows("states"), rows("events"), seconds_since(begin), read_s,
        store_->events());
    machine_ = std::move(again);
    committed_ = last_ticket_ = 0;
    is_cutting_ = false;
    cut_.reset();
    start();
  }

  /// All that could be cut is.
  void settle() {
    wait([this] { return committed_ >= last_ticket_; });
    if (is_cutting_) wait([this] { return cut_.has_value(); });
    note_cut();
    if (store_->events() > 0) {
      is_cutting_ = true;
      store_->compact(store_->last_event(), settings_);
      wait([this] { return cut_.has_value(); });
      note_cut();
    }
    store_.reset();  // With what a cut leaves behind for later.
    store_ = std::move(storage::EventStore::open(folder_).value());
    SGD_ASSERT(store_->load([](TimePoint, core::CoordinatorEvent&&) {}).ok());
    start();
  }
  [[nodiscard]] double bytes() const { return bytes_there(); }
  [[nodiscard]] std::int64_t states() const { return rows("states"); }
  [[nodiscard]] std::uint64_t log_length() const { return store_->events(); }

  void report(double wall_s) {
    std::sort(held_.begin(), held_.end());
    fmt::print(
        "{} events in {:.1f} s ({:.0f}/s), {} cuts; one event held the loop {:.2f} ms at most ({:.2f} ms of CPU), "
        "p99.9 "
        "{:.2f} ms\n",
        played_, wall_s, static_cast<double>(played_) / wall_s, cuts_, to_seconds(longest_) * 1e3,
        to_seconds(longest_cpu_) * 1e3, to_seconds(held_[held_.size() - 1 - held_.size() / 1000]) * 1e3);
  }

 private:
  void start() {
    storage::EventStore::Handlers handlers;
    handlers.on_committed = [this](storage::EventStore::Ticket up_to) { note([&] { committed_ = up_to; }); };
    handlers.on_cut = [this](Result<std::shared_ptr<const storage::StateCut>> cut) {
      note([&] { cut_ = std::move(cut); });
    };
    const Status started = store_->start(std::move(handlers));
    SGD_ASSERT(started.ok());
  }
  [[nodiscard]] double bytes_there() const {
    double bytes = 0;
    for (const char* name : {"/coordinator.db", "/coordinator.db-wal"}) {
      std::error_code error;
      const auto size = std::filesystem::file_size(folder_ + name, error);
      if (!error) bytes += static_cast<double>(size);
    }
    return bytes;
  }
  [[nodiscard]] std::int64_t rows(const std::string& table) const {
    auto database = std::move(storage::Database::open(folder_ + "/coordinator.db").value());
    return std::stoll(database->ask("SELECT count(*) FROM " + table).value());
  }
  static TimePoint now() { return Clock::now(); }
  void tell(const RunId& run, cluster::FactBody body) {
    const auto& ranks = machine_.state().runs_.at(run).state().ranks_;
    const NodeId node = ranks.begin()->second.node;
    const auto& known = machine_.state().nodes_.at(node);
    const GenerationUid uid = machine_.state().runs_.at(run).state().generation_uid_;
    take(core::coordinator_event::FromAgent{
        node, cluster::Fact{known.incarnation, known.last_fact + 1, run, 1, std::move(body), uid}});
    ++played_;
  }
  /// As the shell does: the machine, the store, and a cut when the log is long.
  void take(const core::CoordinatorEvent& event) {
    const auto begin = Clock::now();
    const Duration cpu = thread_cpu();
    core::CoordinatorCommands commands;
    machine_.on(now(), event, commands);
    for (const core::CoordinatorCommand& command : commands)
      if (const auto* stored = std::get_if<core::coordinator_command::Store>(&command))
        last_ticket_ = store_->append(stored->at, stored->event);
    note_cut();
    // What a slow disk has not committed is not there to be cut.
    const std::uint64_t behind = last_ticket_ - committed();
    if (!is_cutting_ && store_->events() > size_.cut_after + behind) {
      is_cutting_ = true;
      store_->compact(store_->last_event() - behind, settings_);
    }
    const Duration held = Clock::now() - begin;
    longest_ = std::max(longest_, held);
    longest_cpu_ = std::max(longest_cpu_, thread_cpu() - cpu);
    held_.push_back(held);
    if (store_->is_full()) wait([this] { return store_->has_room(); });
    if (!is_cutting_ || !size_.waits_for_cuts || store_->events() < 2 * size_.cut_after) return;
    wait([this] { return cut_.has_value(); });
    note_cut();
  }
  void note_cut() {
    std::optional<Result<std::shared_ptr<const storage::StateCut>>> cut;
    {
      const std::lock_guard lock(mutex_);
      cut.swap(cut_);
    }
    if (!cut) return;
    if (!cut->ok()) fmt::print(stderr, "the log could not be cut: {}\n", cut->error().message);
    SGD_ASSERT(cut->ok());
    store_->begin_behind(*cut->value());
    is_cutting_ = false;
    ++cuts_;
    most_bytes_ = std::max(most_bytes_, bytes_there());
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

  Size size_;
  int nodes_;
  int runs_;
  std::string folder_;
  core::CoordinatorSettings settings_{std::chrono::hours(24)};
  core::Coordinator machine_{settings_};
  std::unique_ptr<storage::EventStore> store_;
  std::uint64_t played_ = 0;
  std::int64_t step_ = 1;
  int cuts_ = 0;
  bool is_cutting_ = false;
  double most_bytes_ = 0;
  Duration longest_{};
  Duration longest_cpu_{};
  std::vector<Duration> held_;
  storage::EventStore::Ticket last_ticket_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable pace_;  ///< Nobody notifies it.
  storage::EventStore::Ticket committed_ = 0;
  std::optional<Result<std::shared_ptr<const storage::StateCut>>> cut_;
};

/// Nothing here depends on how fast anything is.
int check(const std::string& folder) {
  Size size;
  size.nodes = 300;
  size.runs = 30;
  size.events_per_s = 0;
  size.cut_after = 1000;
  size.waits_for_cuts = true;
  Bench bench(size, folder);
  bench.fill();
  bench.settle();
  const double bytes = bench.bytes();
  const std::int64_t states = bench.states();
  bool is_well = states == size.nodes + size.runs + 1;
  for (const std::uint64_t events : {std::uint64_t{2000}, std::uint64_t{6000}, std::uint64_t{20'000}}) {
    bench.play(events);
    is_well = is_well && bench.log_length() <= 2 * size.cut_after;
    bench.settle();
    is_well = is_well && bench.states() == states && bench.log_length() == 0 && bench.bytes() < 2 * bytes + 1e6;
    fmt::print("after {} events: {} bytes ({} before them), {} rows of states, {} events that a restart would replay\n",
               events, bench.bytes(), bytes, bench.states(), bench.log_length());
  }
  fmt::print("{}\n",
             is_well ? "All tests passed (bounds of the state in 1 test case)" : "the state grows with its events");
  return is_well ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int index, int otherwise) { return argc > index ? std::stoi(argv[index]) : otherwise; };
  const bool checks = argc > 1 && std::string(argv[1]) == "--check";
  const std::string folder = argc > 4 ? argv[4] : fmt::format("state-bench-{}", ::getpid());
  int code = 0;
  if (checks) {
    code = check(folder);
  } else {
    Size size;
    size.nodes = number(1, size.nodes);
    size.runs = number(2, size.runs);
    size.events = static_cast<std::uint64_t>(number(3, static_cast<int>(size.events)));
    size.events_per_s = number(5, static_cast<int>(size.events_per_s));
    Bench bench(size, folder);
    const auto filled = Clock::now();
    bench.fill();
    fmt::print("filled in {:.1f} s\n", seconds_since(filled));
    double wall_s = 0;
    for (const std::uint64_t mark : {size.events / 10, 3 * size.events / 10, size.events}) {
      const auto begin = Clock::now();
      bench.play(mark);
      wall_s += seconds_since(begin);
      bench.restart();
      std::fflush(stdout);
    }
    bench.report(wall_s);
    bench.ask();
  }
  std::filesystem::remove_all(folder);
  return code;
}

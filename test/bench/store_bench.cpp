// What the coordinator's store costs: the wait for one commit, events a second with grouped commits, bytes an event,
// and how long a restart takes. store_bench [events] [folder]; the folder must be on the disk that is meant.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <vector>

#include <fmt/format.h>

#include "common/job/load.hpp"
#include "launcher/core/coordinator.hpp"
#include "launcher/storage/event_store.hpp"

using namespace sgd;
using Clock = std::chrono::steady_clock;

namespace {

constexpr int kSamples = 500;

class Bench {
 public:
  explicit Bench(std::string folder) : folder_(std::move(folder)) {
    std::filesystem::remove_all(folder_);
    store_ = std::move(storage::EventStore::open(folder_).value());
    storage::EventStore::Handlers handlers;
    handlers.on_committed = [this](storage::EventStore::Ticket up_to) {
      const std::lock_guard lock(mutex_);
      committed_ = up_to;
      changed_.notify_all();
    };
    SGD_ASSERT(store_->start(std::move(handlers)));
  }

  void begin_run() {
    core::RunDefinition run;
    run.id = "fashion-mnist-20261121-101500-4f2a";
    run.run_dir = "/runs/" + run.id;
    run.job = *job::load_resolved(nlohmann::json::parse(R"({"name": "fashion-mnist", "num_workers": 2, "training": {
        "batch_size": 8, "epochs": 100000, "loss": "mse", "model": {"type": "linear"}, "dataset": {"type": "linear"}}})"))
                   .job;
    append(core::coordinator_event::FromAgent{"node1", cluster::NodeState{"node1", 7, "10.0.0.1", 2, 2, true, {}}});
    append(core::coordinator_event::Submitted{std::move(run)});
  }
  /// The next of the reports that two ranks make in turn.
  storage::EventStore::Ticket report() {
    const int number = reports_++ / 2;
    link::Report report{
        {1 + number / 1000, "train", 1 + number % 1000, 0},
        number,
        {{"train_loss", 1.0 / (number + 3)}, {"num_samples", 1024}, {"samples_per_s", 71234.5}, {"step_ms", 3.21}}};
    return append(core::coordinator_event::FromAgent{
        "node1", cluster::Fact{7, ++sequence_, "fashion-mnist-20261121-101500-4f2a", 1,
                               cluster::Report{(reports_ - 1) % 2, std::move(report)}}});
  }
  void wait(storage::EventStore::Ticket ticket) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return committed_ >= ticket; });
  }
  void measure_latency() {
    std::vector<double> waits;
    for (int index = 0; index < kSamples; ++index) {
      const auto begin = Clock::now();
      wait(report());
      waits.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    }
    std::sort(waits.begin(), waits.end());
    fmt::print("one event at a time: commit p50 {:.2f} ms, p99 {:.2f} ms, max {:.2f} ms\n", waits[kSamples / 2],
               waits[kSamples * 99 / 100], waits.back());
  }
  void measure_throughput(int events) {
    const auto begin = Clock::now();
    Duration encoding{0};
    storage::EventStore::Ticket last = 0;
    for (int index = 0; index < events; ++index) {
      const auto before = Clock::now();
      last = report();
      encoding += Clock::now() - before;
      if (store_->is_full()) wait(last - 1000);
    }
    wait(last);
    const double s = std::chrono::duration<double>(Clock::now() - begin).count();
    fmt::print("{} events, grouped: {:.0f} events/s; append() {:.1f} us\n", events, events / s,
               to_seconds(encoding) * 1e6 / events);
  }
  void measure_restart() {
    store_.reset();
    const double bytes = static_cast<double>(std::filesystem::file_size(folder_ + "/coordinator.db"));
    const auto begin = Clock::now();
    auto store = std::move(storage::EventStore::open(folder_).value());
    const auto opened = Clock::now();
    core::Coordinator machine;
    core::CoordinatorCommands commands;
    std::size_t events = 0;
    std::size_t records = 0;
    const Status loaded = store->load([&](TimePoint at, core::CoordinatorEvent&& event) {
      machine.replay(at, event, commands);
      ++events;
      for (const auto& command : commands)
        records += std::holds_alternative<core::coordinator_command::RecordMetrics>(command);
      commands.clear();
    });
    SGD_ASSERT(loaded.ok());
    const auto seconds = [](auto from, auto to) { return std::chrono::duration<double>(to - from).count(); };
    fmt::print(
        "restart: open and check {:.2f} s, replay of {} events {:.2f} s ({} records); {:.0f} MB, {:.0f} bytes an "
        "event\n",
        seconds(begin, opened), events, seconds(opened, Clock::now()), records, bytes / 1e6,
        bytes / static_cast<double>(events));
  }

 private:
  storage::EventStore::Ticket append(const core::CoordinatorEvent& event) {
    return store_->append(Clock::now(), event);
  }

  std::string folder_;
  std::unique_ptr<storage::EventStore> store_;
  int reports_ = 0;
  std::int64_t sequence_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  storage::EventStore::Ticket committed_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const int events = argc > 1 ? std::stoi(argv[1]) : 1'000'000;
  const std::string folder = argc > 2 ? argv[2] : "store-bench";
  {
    Bench bench(folder);
    bench.begin_run();
    bench.measure_latency();
    bench.measure_throughput(events);
    bench.measure_restart();
  }
  std::filesystem::remove_all(folder);
}

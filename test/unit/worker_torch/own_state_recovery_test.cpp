// A group whose operators keep much of their own is killed again and again, and goes on from memory with as many, more
// and fewer ranks: each rank finds what it kept at the step that it goes on from. Real trainings in processes of their
// own.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <catch2/catch.hpp>

#include "common/job/load.hpp"
#include "test/unit/worker/rank_processes.hpp"
#include "worker/collective/factory.hpp"
#include "worker/torch/datasets.hpp"
#include "worker/torch/operator_run.hpp"

namespace sgd::worker::own_state {
namespace {

using testing::expect;
using testing::RankContext;
using testing::run_ranks;

constexpr std::size_t kTextBytes = std::size_t{5} << 18;  // 1.25 MiB.

nlohmann::json state_at(int rank, std::int64_t step) {
  return {
      {"rank", rank}, {"step", step}, {"text", std::string(kTextBytes, static_cast<char>('a' + (rank + step) % 26))}};
}

at::Tensor tensor_at(int rank, std::int64_t step) {
  return at::full({100, 100}, static_cast<double>(step) + 0.5 * rank, at::kDouble);
}

/// How a generation ends: at the next batch after so many copies were begun, or in the middle of the last one.
struct End {
  int copies = 1;
  bool inside = false;
};

class Keeping : public TrainingOperator {
 public:
  /// Leaves a file at `mark` when it ends as planned.
  Keeping(const End& end, std::vector<int> expected_ranks, bool is_first, std::string mark)
      : end_(end), expected_ranks_(std::move(expected_ranks)), is_first_(is_first), mark_(std::move(mark)) {}

  [[nodiscard]] nlohmann::json state() const override {
    if (++copies_ == end_.copies && end_.inside) die();
    return state_at(world_rank(), step_);
  }
  [[nodiscard]] NamedTensors state_tensors() const override { return {{"kept", tensor_at(world_rank(), step_)}}; }
  [[nodiscard]] nlohmann::json shared_state() const override { return {{"step", step_}, {"of", world_rank()}}; }

  void load_shared_state(const nlohmann::json& state) override {
    expect(state.at("of") == 0, "the shared state is rank 0's");
    step_ = state.at("step");
    is_restored_ = true;
  }
  void load_states(std::vector<nlohmann::json> states) override {
    for (const nlohmann::json& state : states) {
      ranks_.push_back(state.at("rank"));
      expect(state == state_at(ranks_.back(), step_), fmt::format("the state of rank {}", ranks_.back()));
    }
  }
  void load_states_tensors(std::vector<NamedTensors> tensors) override {
    expect(tensors.size() == ranks_.size(), "tensors come as states do");
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const at::Tensor& kept = tensors[i].at("kept");
      expect(kept.scalar_type() == at::kDouble && at::equal(kept, tensor_at(ranks_[i], step_)),
             fmt::format("the tensor of rank {}", ranks_[i]));
    }
  }
  BatchMetrics train_batch(const Batch& batch, Step& step) override {
    expect(is_restored_ != is_first_, "every generation but the first goes on from memory");
    expect(ranks_ == expected_ranks_, fmt::format("the states are those of ranks {}", fmt::join(ranks_, ", ")));
    if (copies_ >= end_.copies) die();
    expect(step.info().global_step == step_, "training goes on at the step of the state");
    BatchMetrics metrics = TrainingOperator::train_batch(batch, step);
    step_ = step.info().global_step + 1;
    return metrics;
  }

 private:
  void die() const {
    std::ofstream(mark_).flush();
    ::raise(SIGKILL);
  }

  End end_;
  std::vector<int> expected_ranks_;
  bool is_first_;
  std::string mark_;
  bool is_restored_ = false;
  std::vector<int> ranks_;  // Whose states have come.
  std::int64_t step_ = 0;
  mutable int copies_ = 0;
};

/// An agent that listens and says nothing: what a rank sends stays in the socket.
std::unique_ptr<LinkClient> link_to_nobody(const std::string& path) {
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);  // Open as long as the process.
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  ::unlink(path.c_str());
  expect(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0, "cannot bind " + path);
  expect(::listen(listener, 1) == 0, "cannot listen");
  auto client = LinkClient::connect(path, "token");
  expect(client.ok(), "cannot connect");
  return std::move(client).value();
}

link::Assignment assignment_of(const RankContext& context, Generation generation, const std::string& run_dir) {
  link::Assignment assignment;
  assignment.generation = generation;
  assignment.rank = assignment.local_rank = context.rank;
  assignment.world_size = assignment.local_world_size = context.size;
  assignment.run_dir = run_dir;
  return assignment;
}

nlohmann::json job_config() {
  return {{"name", "own-state"},
          {"num_workers", 1},
          {"heartbeat", {{"stall_timeout", "20s"}}},
          {"checkpoint", {{"every", "never"}, {"keep", 2}}},
          {"training",
           {{"seed", 1},
            {"epochs", 1'000'000},  // All generations end before.
            {"batch_size_per_worker", 4},
            {"model", {{"type", "linear"}}},
            {"loss", "mse"},
            {"dataset", {{"type", "linear"}}},
            {"optimizer", {{"type", "sgd"}, {"lr", 0.001}}}}}};
}

struct Node {
  testing::Memory region, memory;
  std::string run_dir;
};

std::string mark_of(const Node& node, Generation generation, int rank) {
  return fmt::format("{}/ended-{}-{}", node.run_dir, generation, rank);
}

/// One rank from its assignment to its end; throws what is wrong with the states that it has got.
void train(const RankContext& context, const Node& node, Generation generation, const End& end,
           const std::vector<int>& expected_ranks) {
  at::set_num_threads(1);
  const auto link = link_to_nobody(fmt::format("{}/link-{}", node.run_dir, context.rank));
  job::LoadResult loaded = job::load_resolved(job_config());
  expect(loaded.job && loaded.job->training, "the job cannot be read");
  const auto dataset = make_dataset(*loaded.job->training);
  const link::Assignment assignment = assignment_of(context, generation, node.run_dir);
  Keeping keeping(end, expected_ranks, generation == 1, mark_of(node, generation, context.rank));
  const auto form_group = [&](std::size_t gradient_count, DeviceGradients*) {
    CollectiveSetup setup;
    setup.rank = setup.local_rank = context.rank;
    setup.world_size = setup.local_world_size = context.size;
    setup.generation = generation;
    setup.region_fd = node.region.fd();
    setup.gradient_count = gradient_count;
    setup.stall_timeout = std::chrono::seconds(20);
    setup.exchange = context.exchange;
    return make_collective(setup);
  };
  const EngineSetup setup{*loaded.job,
                          assignment,
                          *link,
                          dataset.get(),
                          form_group,
                          nullptr,
                          node.memory.fd(),
                          std::chrono::steady_clock::now()};
  (void)OperatorRun(setup, keeping).run();
}

}  // namespace

TEST_CASE("an operator's own state of more than a megabyte survives kills from memory, at any number of ranks") {
  char name[] = "/tmp/sgd-own-state-XXXXXX";
  Node node;
  node.run_dir = ::mkdtemp(name);
  struct Row {
    int world_size;
    End end;
    std::vector<std::vector<int>> given;  // By rank: whose states it gets.
  };
  const Row rows[] = {
      {2, {1, false}, {{}, {}}},    {2, {2, true}, {{0}, {1}}}, {3, {1, false}, {{0}, {1}, {}}},
      {1, {1, false}, {{0, 1, 2}}}, {1, {1, true}, {{0}}},
  };
  Generation generation = 0;
  for (const Row& row : rows) {
    ++generation;
    CAPTURE(generation);
    const auto ends = run_ranks({row.world_size, {}}, [&](const RankContext& context) {
      train(context, node, generation, row.end, row.given[static_cast<std::size_t>(context.rank)]);
    });
    for (int rank = 0; rank < row.world_size; ++rank) {
      CHECK(std::filesystem::exists(mark_of(node, generation, rank)));
      CHECK(ends[static_cast<std::size_t>(rank)] == fmt::format("rank {} ended without a word", rank));
    }
  }
  std::filesystem::remove_all(node.run_dir);
}

}  // namespace sgd::worker::own_state

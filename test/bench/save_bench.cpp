// How long a checkpoint holds training, against one memcpy of as many bytes in the same process, and
// what a copy into the memory checkpoint costs. Half of the state is parameters, half momentum.
//   save_bench [MiB of state: 256] [saves: 7] [folder: .]
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "worker/core/aligned_floats.hpp"
#include "worker/torch/checkpoint_writer.hpp"
#include "worker/torch/memory_saver.hpp"
#include "worker/torch/state_parts.hpp"

namespace {

using namespace sgd;
using namespace sgd::worker;
using Clock = std::chrono::steady_clock;

constexpr Duration kDeadline = std::chrono::minutes(5);

double ms_since(TimePoint began) {
  return 1e3 * to_seconds(Clock::now() - began);
}

struct Figures {
  std::vector<double> ms;
  [[nodiscard]] double median() const {
    std::vector<double> sorted = ms;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
  void print(const char* what) const {
    const auto [least, most] = std::minmax_element(ms.begin(), ms.end());
    std::printf("%-28s median %.1f ms (%.1f-%.1f)\n", what, median(), *least, *most);
  }
};

struct State {
  explicit State(std::size_t floats) : parameters(floats), momentum(floats) {
    populate_pages(std::as_writable_bytes(parameters.span()));
    populate_pages(std::as_writable_bytes(momentum.span()));
    for (std::size_t i = 0; i < floats; ++i) parameters.data()[i] = momentum.data()[i] = static_cast<float>(i);
    place.name = "weight";
    place.shape = {static_cast<std::int64_t>(floats)};
    place.count = floats;
  }
  StateTensors tensors() {
    const std::span<const ParameterPlace> places(&place, 1);
    return {{{"", parameters.span(), places, 0}, {".momentum_buffer", momentum.span(), places, 0}},
            {},
            {{"optimizer", "sgd"}}};
  }
  AlignedFloats parameters, momentum;
  ParameterPlace place;
};

/// Into buffers that are there already, as a save's are from its second on.
void time_memcpy(State& state, AlignedFloats& copy, Figures& figures) {
  const TimePoint began = Clock::now();
  std::memcpy(copy.data(), state.parameters.data(), state.parameters.span().size_bytes());
  std::memcpy(copy.data() + state.parameters.size(), state.momentum.data(), state.momentum.span().size_bytes());
  figures.ms.push_back(ms_since(began));
}

void require(const Status& status) {
  if (status) return;
  std::fprintf(stderr, "save_bench: %s\n", status.error().message.c_str());
  std::exit(1);
}

int run(std::size_t mib, int saves, const std::string& folder) {
  const std::size_t floats = mib * (std::size_t{1} << 20) / sizeof(float) / 2;
  State state(floats);
  AlignedFloats copy(2 * floats);
  populate_pages(std::as_writable_bytes(copy.span()));
  std::vector<double> write_s;
  CheckpointTarget target{folder, 1};
  CheckpointWriter writer(target, [&write_s](const link::FromWorker& told) {
    write_s.push_back(std::get<link::CheckpointSaved>(told).write_s);
  });
  writer.prepare(state.tensors());
  require(writer.wait(kDeadline));
  const StateParts parts = state_parts(state.tensors());
  const int fd = ::memfd_create("memory", 0);
  auto memory = MemoryCheckpoint::create(fd, parts.layout);
  if (!memory) require(memory.error());
  std::atomic<bool> cancelled{false};
  const TimePoint populating = Clock::now();
  require(memory.value()->populate(cancelled));
  std::printf("%zu MiB of state; its pages in memory: %.0f ms, behind training\n", mib, ms_since(populating));
  Figures plain, stall, commit;
  TrainingState training;
  training.records.resize(1);
  const std::string_view text[] = {"{}"};
  for (int i = 0; i < saves; ++i) {
    training.step = i + 1;
    time_memcpy(state, copy, plain);
    const TimePoint began = Clock::now();
    writer.save(training, state.tensors(), began);
    stall.ms.push_back(ms_since(began));
    require(writer.wait(kDeadline));
    const TimePoint committing = Clock::now();
    require(memory.value()->commit(1, {training.step}, text, parts.readable()));
    commit.ms.push_back(ms_since(committing));
  }
  plain.print("memcpy");
  stall.print("save holds training for");
  commit.print("copy in memory, checksummed");
  std::printf("first save %.1f ms; stall / memcpy %.2f; copy / memcpy %.2f; written behind in %.2f s (%zu of %d)\n",
              stall.ms.front(), stall.median() / plain.median(), commit.median() / plain.median(),
              write_s.empty() ? 0.0 : *std::min_element(write_s.begin(), write_s.end()), write_s.size(), saves);
  return static_cast<int>(write_s.size()) == saves ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t mib = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 256;
  const int saves = argc > 2 ? std::atoi(argv[2]) : 7;
  std::string folder = (std::filesystem::path(argc > 3 ? argv[3] : ".") / "sgd-save-bench-XXXXXX").string();
  if (mib == 0 || saves < 1 || ::mkdtemp(folder.data()) == nullptr) {
    std::fputs("usage: save_bench [MiB of state] [saves] [folder that can be written]\n", stderr);
    return 2;
  }
  const int code = run(mib, saves, folder);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return code;
}

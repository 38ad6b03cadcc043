// All-reduce times of the shared-memory collective, 4 B to 64 MiB: shm_bench [ranks] [spin|sleep].
// Two ranks on two cores spin; more ranks than cores need "sleep". Prints one line per size.

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "worker/collective/shm_collective.hpp"

namespace {

using sgd::worker::ShmCollective;
using sgd::worker::ShmRegion;
using sgd::worker::Waiting;

// Mean time of an all-reduce. Before each, every rank writes its gradients, as a backward pass does:
// otherwise the slices would stay in the cache of the core that sums them. That part is not counted,
// except for the few floats of a small buffer, where reading the clock would cost more.
double measured_us(ShmCollective& collective, int rounds) {
  using Clock = std::chrono::steady_clock;
  const bool small = collective.gradients().size() < 1000;
  Clock::duration total{};
  collective.barrier();
  const auto begin = Clock::now();
  for (int i = 0; i < rounds; ++i) {
    std::fill(collective.gradients().begin(), collective.gradients().end(), static_cast<float>(i));
    if (small) {
      (void)collective.all_reduce(0);
      continue;
    }
    collective.barrier();
    const auto start = Clock::now();
    (void)collective.all_reduce(0);
    total += Clock::now() - start;
  }
  if (small) total = Clock::now() - begin;
  return std::chrono::duration<double, std::micro>(total).count() / rounds;
}

void be_rank(int fd, int rank, int ranks, std::size_t count, Waiting waiting) {
  ShmCollective collective(fd, 1, rank, ranks, count, waiting, std::chrono::seconds(60));
  const int rounds = static_cast<int>(std::clamp<std::size_t>(100'000'000 / (count + 1000), 10, 20'000));
  (void)measured_us(collective, rounds / 10 + 1);  // Touches all pages.
  std::vector<double> series;
  for (int i = 0; i < 5; ++i) series.push_back(measured_us(collective, rounds));
  std::sort(series.begin(), series.end());
  const double bytes = static_cast<double>(count) * sizeof(float);
  if (rank == 0) {
    std::printf("%2d ranks %10.0f B  median %10.2f us  min %10.2f  max %10.2f  %6.2f GB/s\n", ranks, bytes, series[2],
                series[0], series[4], bytes / series[2] / 1e3);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  const Waiting waiting = argc > 2 && std::strcmp(argv[2], "sleep") == 0 ? Waiting::kSleep : Waiting::kSpin;
  const int fd = ::memfd_create("shm_bench", MFD_CLOEXEC);
  for (const std::size_t count :
       {std::size_t{1}, std::size_t{256}, std::size_t{4096}, std::size_t{65'536}, std::size_t{235'146},
        std::size_t{1} << 18, std::size_t{1} << 20, std::size_t{1} << 22, std::size_t{1} << 24}) {
    ShmRegion::prepare(fd, 1, ranks, count);
    for (int rank = 1; rank < ranks; ++rank) {
      if (::fork() != 0) continue;
      be_rank(fd, rank, ranks, count, waiting);
      ::_exit(0);
    }
    be_rank(fd, 0, ranks, count, waiting);
    while (::wait(nullptr) > 0) {
    }
  }
}

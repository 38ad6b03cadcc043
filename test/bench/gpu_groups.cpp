// A communicator of NCCL of one rank is made, used and aborted again and again, on the GPU that this process sees
// first: bin/gpu_groups [rounds] prints how long each part takes, for how long NCCL clears up behind an abort, and what
// memory has grown by, of the GPU and of the process. It ends with 1 where that is more than caches take.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <limits>
#include <vector>

#include "common/job/load.hpp"
#include "worker/collective/nccl_api.hpp"
#include "worker/collective/nccl_group.hpp"
#include "worker/torch/device.hpp"
#include "worker/torch/device_library.hpp"
#include "worker/torch/device_usage.hpp"
#include "worker/torch/flat_gradients.hpp"

namespace {

using namespace sgd;
using namespace sgd::worker;

constexpr std::size_t kFloats = 1 << 20;
constexpr int kSettled = 10;  // Rounds until caches have what they keep.
constexpr Duration kLimit = std::chrono::seconds(60);
constexpr double kDeviceGrowthMib = 8;
constexpr double kProcessGrowthMib = 16;

template <class Done>
double milliseconds_until(Done done) {
  const auto began = std::chrono::steady_clock::now();
  while (!done()) {
    if (std::chrono::steady_clock::now() - began > kLimit) throw std::runtime_error("NCCL or the GPU took over 60 s");
    (void)::poll(nullptr, 0, 1);  // Ignoring: only time passes.
  }
  return to_seconds(std::chrono::steady_clock::now() - began) * 1000;
}

double resident_mib() {
  long pages = 0;
  long resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

/// NaN where NVML does not tell it.
double device_mib(const DeviceMonitor* monitor) {
  const auto usage = monitor == nullptr ? std::nullopt : monitor->now();
  return usage ? usage->memory_mib : std::numeric_limits<double>::quiet_NaN();
}

int measure(int rounds) {
  job::JobSpec job;
  job.training.emplace();
  job.training->device = "cuda";
  open_device_library();
  const Device device = Device::of(job, 0);
  const std::unique_ptr<DeviceMonitor> monitor = DeviceMonitor::open(device.uuid());
  const NcclApi& api = load_nccl();
  FlatGradients gradients(device, kFloats);
  std::vector<double> connected;
  std::vector<double> aborted;
  std::vector<double> left;
  double on_device = 0;
  double in_process = 0;
  for (int round = 0; round < rounds; ++round) {
    NcclGroup group(api, 0, 1, gradients.entrance());
    group.begin(NcclGroup::make_id(api));
    const auto is_ready = [&group] { return group.is_ready(); };
    connected.push_back(milliseconds_until(is_ready));
    group.all_reduce(gradients.values().data(), kFloats, gradients.stream());
    (void)milliseconds_until(is_ready);  // Ignoring: the sum is timed elsewhere.
    gradients.look(0, kFloats);
    (void)milliseconds_until([&gradients] { return gradients.seen().has_value(); });  // Ignoring: as above.
    const auto began = std::chrono::steady_clock::now();
    group.abort();
    aborted.push_back(to_seconds(std::chrono::steady_clock::now() - began) * 1000);
    left.push_back(milliseconds_until([&group] { return group.has_left(); }));
    if (round == std::min(kSettled, rounds - 1)) {
      on_device = device_mib(monitor.get());
      in_process = resident_mib();
    }
  }
  const double device_growth = device_mib(monitor.get()) - on_device;
  const double process_growth = resident_mib() - in_process;
  std::printf(
      "%s, NCCL %s: %d times init, sum, abort: connected in %.1f ms, aborted in %.1f ms, all given back after %.1f ms "
      "(medians); memory grew by %.1f MiB on the device, %.1f MiB in the process\n",
      device.name().c_str(), nccl_version_text(api.version).c_str(), rounds, median(connected), median(aborted),
      median(left), device_growth, process_growth);
  // In this order, so that growth which is not known fails, too.
  if (device_growth <= kDeviceGrowthMib && process_growth <= kProcessGrowthMib) return 0;
  std::fprintf(stderr, "gpu_groups: memory grew by more than %.0f MiB on the device or %.0f MiB in the process\n",
               kDeviceGrowthMib, kProcessGrowthMib);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return measure(argc > 1 ? std::max(std::atoi(argv[1]), 1) : 100);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_groups: %s\n", error.what());
    return 1;
  }
}

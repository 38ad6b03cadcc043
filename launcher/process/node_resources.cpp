#include "launcher/process/node_resources.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <memory>
#include <numeric>
#include <sstream>

#include "launcher/process/memory_cgroup.hpp"

namespace sgd::process {
namespace {

constexpr std::int64_t kKiB = 1024;

std::int64_t machine_memory_bytes(const std::string& proc) {
  std::ifstream file(proc + "/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    std::int64_t value = 0;
    if (words >> key >> value && key == "MemTotal:") return value * kKiB;
  }
  return 0;
}

/// Three calls of NVML's C interface, whose numbers for success and whose names are kept by NVIDIA:
/// https://docs.nvidia.com/deploy/nvml-api. The library belongs to the driver, so it is not linked.
int count_gpus(const std::string& library) {
  const std::unique_ptr<void, int (*)(void*)> handle(::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL),
                                                     [](void* open) { return open == nullptr ? 0 : ::dlclose(open); });
  if (!handle) return 0;
  const auto init = reinterpret_cast<int (*)()>(::dlsym(handle.get(), "nvmlInit_v2"));
  const auto get_count = reinterpret_cast<int (*)(unsigned*)>(::dlsym(handle.get(), "nvmlDeviceGetCount_v2"));
  const auto shut_down = reinterpret_cast<int (*)()>(::dlsym(handle.get(), "nvmlShutdown"));
  if (init == nullptr || get_count == nullptr || shut_down == nullptr || init() != 0) return 0;
  unsigned count = 0;
  const bool is_counted = get_count(&count) == 0;
  (void)shut_down();
  return is_counted ? static_cast<int>(count) : 0;
}

}  // namespace

std::int64_t memory_bytes(const std::string& proc, const std::string& cgroup) {
  const std::int64_t machine = machine_memory_bytes(proc);
  const auto group = find_memory_cgroup(proc, cgroup);
  const auto limit = group ? group->limit_bytes() : std::nullopt;
  return limit && (machine == 0 || *limit < machine) ? *limit : machine;
}

std::vector<int> gpus(const char* visible, const std::string& library) {
  std::vector<int> numbers;
  if (visible == nullptr) {
    numbers.resize(static_cast<std::size_t>(count_gpus(library)));
    std::iota(numbers.begin(), numbers.end(), 0);
    return numbers;
  }
  std::istringstream list{std::string(visible)};
  for (std::string word; std::getline(list, word, ',');) {
    int number = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error != std::errc() || end != word.data() + word.size() || number < 0) continue;
    if (std::find(numbers.begin(), numbers.end(), number) == numbers.end()) numbers.push_back(number);
  }
  return numbers;
}

}  // namespace sgd::process

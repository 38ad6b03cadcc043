#include "launcher/process/cpu_set.hpp"

#include <cerrno>
#include <charconv>
#include <climits>
#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "common/base/assert.hpp"

namespace sgd::process {
namespace {
constexpr int kWordBits = sizeof(unsigned long) * CHAR_BIT;
constexpr std::size_t kWordsMax = 1 << 12;  // 262,144 cores: more than Linux can be built for.
}  // namespace

CpuMask::CpuMask(const std::vector<int>& cores) {
  for (const int core : cores) {
    SGD_ASSERT(core >= 0);
    const std::size_t word = static_cast<std::size_t>(core / kWordBits);
    SGD_ASSERT(word < kWordsMax);
    if (word >= words_.size()) words_.resize(word + 1, 0);
    words_[word] |= 1UL << (core % kWordBits);
  }
}

std::vector<int> allowed_cores() {
  std::vector<int> cores;
  // The kernel refuses a mask smaller than its own with EINVAL.
  for (std::size_t size = 16; size <= kWordsMax; size *= 2) {
    std::vector<unsigned long> words(size, 0);
    auto* mask = reinterpret_cast<cpu_set_t*>(words.data());
    if (::sched_getaffinity(0, size * sizeof(unsigned long), mask) != 0) {
      if (errno == EINVAL) continue;
      break;
    }
    for (std::size_t word = 0; word < size; ++word) {
      for (int bit = 0; bit < kWordBits; ++bit) {
        if ((words[word] >> bit) & 1) cores.push_back(static_cast<int>(word) * kWordBits + bit);
      }
    }
    break;
  }
  if (cores.empty()) cores.push_back(0);
  return cores;
}

std::vector<std::vector<int>> by_numa_node(const std::vector<int>& cores, const std::string& nodes) {
  std::map<int, std::vector<int>> found;
  std::error_code error;
  std::filesystem::directory_iterator entry(nodes, error);
  for (std::error_code ignored; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    int node = -1;
    const std::string name = entry->path().filename().string();
    if (!name.starts_with("node") ||
        std::from_chars(name.data() + 4, name.data() + name.size(), node).ptr != name.data() + name.size())
      continue;
    for (const int core : cores)
      if (std::filesystem::exists(entry->path() / ("cpu" + std::to_string(core)), ignored)) found[node].push_back(core);
  }
  std::vector<std::vector<int>> by_node;
  for (auto& [node, of_node] : found) by_node.push_back(std::move(of_node));
  return by_node;
}

}  // namespace sgd::process

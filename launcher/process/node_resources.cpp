#include "launcher/process/node_resources.hpp"

#include <algorithm>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>

#include "launcher/process/memory_cgroup.hpp"
#include "launcher/process/nvml.hpp"

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

/// A device's number, or its UUID or the beginning of one.
bool names_device(const std::string& word) {
  if (word.starts_with("GPU-") || word.starts_with("MIG-")) return true;
  return !word.empty() && word.find_first_not_of("0123456789") == std::string::npos;
}

std::vector<std::string> all_gpus(const std::string& library) {
  std::vector<std::string> names;
  const std::unique_ptr<Nvml> nvml = Nvml::open(library);
  if (!nvml) return names;
  const unsigned count = nvml->count();
  std::vector<std::string> uuids;
  std::vector<std::optional<std::vector<std::string>>> parts;
  for (unsigned index = 0; index < count; ++index) {
    uuids.push_back(nvml->uuid(index));
    parts.push_back(nvml->parts(index));
  }
  // CUDA does not see these, and counts on without them: then its numbers are not NVML's.
  bool are_all_there = true;
  const auto is_missing = [&](unsigned index) {
    return uuids[index].empty() || (parts[index] && parts[index]->empty());
  };
  for (unsigned index = 0; index < count; ++index) are_all_there = are_all_there && !is_missing(index);
  for (unsigned index = 0; index < count; ++index) {
    if (is_missing(index)) continue;
    if (parts[index])
      names.insert(names.end(), parts[index]->begin(), parts[index]->end());
    else
      names.push_back(are_all_there ? std::to_string(index) : uuids[index]);
  }
  return names;
}

}  // namespace

std::int64_t memory_bytes(const std::string& proc, const std::string& cgroup) {
  const std::int64_t machine = machine_memory_bytes(proc);
  const auto group = find_memory_cgroup(proc, cgroup);
  const auto limit = group ? group->limit_bytes() : std::nullopt;
  return limit && (machine == 0 || *limit < machine) ? *limit : machine;
}

bool are_gpus_by_bus(const char* visible, const char* order) {
  return visible == nullptr && order == nullptr;
}

std::vector<std::string> gpus(const char* visible, const std::string& library) {
  if (visible == nullptr) return all_gpus(library);
  std::vector<std::string> names;
  std::istringstream list{std::string(visible)};
  for (std::string word; std::getline(list, word, ',');) {
    const std::size_t begin = word.find_first_not_of(' ');
    word = begin == std::string::npos ? "" : word.substr(begin, word.find_last_not_of(' ') + 1 - begin);
    if (!names_device(word)) break;
    if (std::find(names.begin(), names.end(), word) == names.end()) names.push_back(word);
  }
  return names;
}

}  // namespace sgd::process

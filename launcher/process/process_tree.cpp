#include "launcher/process/process_tree.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "launcher/process/unique_fd.hpp"

namespace sgd::process {
namespace {

constexpr std::size_t kStatBytesMax = 1024;
constexpr int kLevelsMax = 10'000;  // Parents of parents; more than that is a tree that changes under our eyes.
constexpr std::size_t kChildrenBytesMax = 1 << 20;  // 100,000 children of one thread.

std::string read_small_file(const char* path, std::size_t bytes_max) {
  UniqueFd fd(::open(path, O_RDONLY | O_CLOEXEC));
  std::string text;
  if (!fd) return text;
  char buffer[4096];
  while (text.size() < bytes_max) {
    const ssize_t count = ::read(fd.get(), buffer, sizeof buffer);
    if (count <= 0) break;
    text.append(buffer, static_cast<std::size_t>(count));
  }
  return text;
}

/// The numeric names in a folder of /proc.
std::vector<pid_t> numbers_in(const char* path) {
  std::vector<pid_t> numbers;
  std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path), ::closedir);
  if (!folder) return numbers;
  while (const dirent* entry = ::readdir(folder.get())) {
    pid_t number = 0;
    const char* end = entry->d_name + std::strlen(entry->d_name);
    const auto parsed = std::from_chars(entry->d_name, end, number);
    if (parsed.ec == std::errc() && parsed.ptr == end) numbers.push_back(number);
  }
  return numbers;
}

std::vector<pid_t> children_from_files(pid_t pid) {
  std::vector<pid_t> children;
  char path[80];
  std::snprintf(path, sizeof path, "/proc/%d/task", pid);
  for (const pid_t thread : numbers_in(path)) {
    std::snprintf(path, sizeof path, "/proc/%d/task/%d/children", pid, thread);
    const std::string text = read_small_file(path, kChildrenBytesMax);
    const char* at = text.data();
    const char* end = at + text.size();
    while (at < end) {
      pid_t child = 0;
      const auto parsed = std::from_chars(at, end, child);
      if (parsed.ec != std::errc()) break;
      children.push_back(child);
      at = parsed.ptr + 1;
    }
  }
  return children;
}

bool have_children_files() {
  static const bool have = [] {
    char path[80];
    std::snprintf(path, sizeof path, "/proc/self/task/%d/children", ::getpid());
    return ::access(path, R_OK) == 0;
  }();
  return have;
}

std::vector<ProcessEntry> descendants_by_files(pid_t root) {
  std::vector<ProcessEntry> found;
  std::set<pid_t> known{root};
  std::vector<pid_t> open{root};
  while (!open.empty()) {
    std::vector<pid_t> next;
    for (const pid_t parent : open) {
      for (const pid_t child : children_from_files(parent)) {
        if (!known.insert(child).second) continue;
        if (const auto entry = read_process(child)) {
          found.push_back(*entry);
          next.push_back(child);
        }
      }
    }
    open = std::move(next);
  }
  return found;
}

std::vector<ProcessEntry> descendants_by_scan(pid_t root) {
  std::multimap<pid_t, ProcessEntry> by_parent;
  for (const pid_t pid : numbers_in("/proc")) {
    if (const auto entry = read_process(pid)) by_parent.emplace(entry->parent, *entry);
  }
  std::vector<ProcessEntry> found;
  std::set<pid_t> known{root};
  std::vector<pid_t> open{root};
  while (!open.empty()) {
    std::vector<pid_t> next;
    for (const pid_t parent : open) {
      const auto [begin, end] = by_parent.equal_range(parent);
      for (auto at = begin; at != end; ++at) {
        if (!known.insert(at->second.pid).second) continue;
        found.push_back(at->second);
        next.push_back(at->second.pid);
      }
    }
    open = std::move(next);
  }
  return found;
}

}  // namespace

std::optional<ProcessEntry> read_process(pid_t pid) {
  char path[80];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  const std::string text = read_small_file(path, kStatBytesMax);
  // "pid (name) state parent group ... start": the name may hold anything, so the last ')' counts.
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return std::nullopt;
  std::vector<std::string_view> fields;
  std::string_view rest = std::string_view(text).substr(name_end + 2);
  while (!rest.empty() && fields.size() < 20) {
    const std::size_t space = rest.find(' ');
    fields.push_back(rest.substr(0, space));
    if (space == std::string_view::npos) break;
    rest.remove_prefix(space + 1);
  }
  if (fields.size() < 20) return std::nullopt;
  ProcessEntry entry;
  entry.pid = pid;
  entry.zombie = fields[0] == "Z" || fields[0] == "X";
  entry.stopped = fields[0] == "T";
  std::from_chars(fields[1].data(), fields[1].data() + fields[1].size(), entry.parent);
  std::from_chars(fields[2].data(), fields[2].data() + fields[2].size(), entry.group);
  std::from_chars(fields[3].data(), fields[3].data() + fields[3].size(), entry.session);
  std::from_chars(fields[19].data(), fields[19].data() + fields[19].size(), entry.start_ticks);
  return entry;
}

bool is_below(pid_t pid, pid_t root) {
  for (int level = 0; level < kLevelsMax && pid > 0; ++level) {
    const auto entry = read_process(pid);
    if (!entry) return false;
    if (entry->parent == root) return true;
    pid = entry->parent;
  }
  return false;
}

std::vector<ProcessEntry> all_processes() {
  std::vector<ProcessEntry> found;
  for (const pid_t pid : numbers_in("/proc"))
    if (const auto entry = read_process(pid)) found.push_back(*entry);
  return found;
}

std::vector<ProcessEntry> descendants(pid_t root, TreeSource source) {
  if (source == TreeSource::kBest) source = have_children_files() ? TreeSource::kChildren : TreeSource::kScan;
  return source == TreeSource::kChildren ? descendants_by_files(root) : descendants_by_scan(root);
}

Status become_subreaper() {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return system_error("cannot become a child subreaper");
  return {};
}

}  // namespace sgd::process

#include "launcher/storage/retention.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "launcher/storage/latest_run.hpp"
#include "launcher/storage/remove_tree.hpp"
#include "launcher/storage/sync_names.hpp"

namespace sgd::storage {
namespace fs = std::filesystem;
namespace {

constexpr const char* kPinned = "/pinned";
constexpr const char* kRemoved = ".removed-";

}  // namespace

std::vector<EndedRun> beyond(std::vector<EndedRun> ended, const Retention& retention, double now_s) {
  std::erase_if(ended, [now_s](const EndedRun& run) { return run.finished_s > now_s; });
  std::sort(ended.begin(), ended.end(), [](const EndedRun& a, const EndedRun& b) {
    return std::tie(b.finished_s, b.id) < std::tie(a.finished_s, a.id);
  });
  std::size_t count = 0;
  std::int64_t bytes = 0;
  for (const EndedRun& run : ended) bytes += run.is_pinned ? run.bytes : 0;
  std::vector<EndedRun> gone;
  for (EndedRun& run : ended) {
    if (run.is_pinned) continue;
    const bool is_old = retention.age && now_s - run.finished_s > to_seconds(*retention.age);
    const bool is_one_too_many = retention.count && count >= *retention.count;
    const bool is_too_much = retention.bytes && bytes + run.bytes > *retention.bytes;
    if (is_old || is_one_too_many || is_too_much) {
      gone.push_back(std::move(run));
      continue;
    }
    ++count;
    bytes += run.bytes;
  }
  std::reverse(gone.begin(), gone.end());
  return gone;
}

std::int64_t bytes_below(const std::string& directory) {
  constexpr std::int64_t kBlock = 512;
  std::int64_t bytes = 0;
  std::error_code error;
  fs::recursive_directory_iterator entry(directory, fs::directory_options::skip_permission_denied, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    struct stat info {};
    if (::lstat(entry->path().c_str(), &info) != 0) continue;
    bytes += std::max(std::int64_t{info.st_blocks} * kBlock, S_ISREG(info.st_mode) ? std::int64_t{info.st_size} : 0);
  }
  return bytes;
}

bool is_pinned(const std::string& directory) {
  std::error_code error;
  return fs::exists(directory + kPinned, error);
}

Status set_pinned(const std::string& directory, bool pinned) {
  const std::string path = directory + kPinned;
  if (!pinned)
    return ::unlink(path.c_str()) == 0 || errno == ENOENT ? Status{} : Status(system_error("cannot remove " + path));
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return system_error("cannot create " + path);
  ::close(fd);
  return sync_path(directory);
}

bool is_run_live(const std::string& directory) {
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return false;
  // Shared: those who look are not seen by each other.
  const bool is_locked = ::flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(fd);
  return is_locked;
}

Status remove_run_folder(const std::string& directory) {
  const fs::path path(directory);
  const fs::path gone = path.parent_path() / (kRemoved + path.filename().string());
  (void)remove_tree(gone.string());  // Ignoring: then the name is taken, which is said.
  std::error_code error;
  fs::rename(path, gone, error);
  if (error && error != std::errc::no_such_file_or_directory)
    return Error{fmt::format("cannot remove {}: {}", directory, error.message())};
  error = remove_tree(gone.string());
  if (error) return Error{fmt::format("cannot remove {}: {}", gone.string(), error.message())};
  mend_latest(path.parent_path().string());
  return {};
}

namespace {

/// The runs below, in no order; those in `left_out` are not looked at.
std::vector<EndedRun> look_below(const std::string& runs_dir, const std::set<RunId>& left_out) {
  std::vector<EndedRun> runs;
  std::error_code error;
  for (fs::directory_iterator entry(runs_dir, error), end; !error && entry != end; entry.increment(error)) {
    const std::string folder = entry->path().string();
    const std::string name = entry->path().filename().string();
    std::error_code ignored;
    if (entry->is_symlink(ignored) || name.starts_with(kRemoved) || left_out.contains(name)) continue;
    struct stat info {};
    if (::stat((folder + "/events.jsonl").c_str(), &info) != 0) continue;
    struct stat summary {};
    const bool has_summary = ::stat((folder + "/summary.json").c_str(), &summary) == 0;
    const double at = static_cast<double>((has_summary ? summary : info).st_mtime);
    runs.push_back({name, folder, is_run_live(folder) ? 0 : at, bytes_below(folder), is_pinned(folder)});
  }
  return runs;
}

}  // namespace

std::vector<EndedRun> runs_below(const std::string& runs_dir) {
  std::vector<EndedRun> runs = look_below(runs_dir, {});
  std::sort(runs.begin(), runs.end(), [](const EndedRun& a, const EndedRun& b) {
    const auto rank = [](const EndedRun& run) { return std::tuple(run.finished_s != 0, -run.finished_s); };
    return rank(a) != rank(b) ? rank(a) < rank(b) : a.id < b.id;
  });
  return runs;
}

std::vector<EndedRun> strays_below(const std::string& runs_dir, const std::set<RunId>& known, double now_s) {
  std::vector<EndedRun> strays = look_below(runs_dir, known);
  std::erase_if(strays,
                [now_s](const EndedRun& run) { return run.finished_s == 0 || now_s - run.finished_s < kStrayAge; });
  return strays;
}

}  // namespace sgd::storage

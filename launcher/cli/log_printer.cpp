#include "launcher/cli/log_printer.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "common/base/result.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::cli {
namespace {
namespace fs = std::filesystem;

constexpr std::size_t kReadBytes = 256 << 10;

/// "rank-0003.log" in "gen-0002": 3 and 2; -1 for another name.
int number_in(const std::string& name, const std::string& before) {
  int number = -1;
  if (name.starts_with(before)) std::from_chars(name.data() + before.size(), name.data() + name.size(), number);
  return number;
}

}  // namespace

LogPrinter::LogPrinter(const std::string& run_dir, Choice choice, Write write)
    : logs_(run_dir + "/logs"), choice_(std::move(choice)), write_(std::move(write)), buffer_(kReadBytes, '\0') {}

bool LogPrinter::print_new(bool is_live) {
  trouble_.clear();
  const std::vector<File> found = files(is_live ? newest_ - kGrowing + 1 : 0);
  for (const File& file : found) {
    const auto [place, is_new] =
        logs_read_.try_emplace(file, ReadLog{LogLines(choice_.prefix ? fmt::format("{}: ", file.rank) : "")});
    if (!print_file(file.path, place->second)) return false;
  }
  if (!found.empty()) newest_ = std::max(newest_, found.back().generation);
  return true;
}

void LogPrinter::print_rest() {
  for (auto& [file, log] : logs_read_) (void)write_(log.lines.rest());  // Ignoring: nothing follows.
}

/// Of the generations from this one on.
std::vector<LogPrinter::File> LogPrinter::files(int from) const {
  std::vector<File> found;
  std::error_code error;
  fs::directory_iterator folder(logs_, error);
  for (; !error && folder != fs::directory_iterator(); folder.increment(error)) {
    const int generation = number_in(folder->path().filename().string(), "gen-");
    if (generation < std::max(from, 0) || generation != choice_.generation.value_or(generation)) continue;
    std::error_code unread;
    fs::directory_iterator file(folder->path(), unread);
    for (; !unread && file != fs::directory_iterator(); file.increment(unread)) {
      const int rank = number_in(file->path().filename().string(), "rank-");
      if (rank >= 0 && rank == choice_.rank.value_or(rank)) found.push_back({generation, rank, file->path().string()});
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool LogPrinter::print_file(const std::string& path, ReadLog& log) {
  const process::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return note(path);
  for (;;) {
    const ssize_t count = ::pread(fd.get(), buffer_.data(), buffer_.size(), log.bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return note(path);
    if (count == 0) return true;
    has_found_ = true;
    log.bytes += count;
    if (!write_(log.lines.add({buffer_.data(), static_cast<std::size_t>(count)}))) return false;
  }
}

/// What has gone has no lines any more.
bool LogPrinter::note(const std::string& path) {
  if (errno != ENOENT && trouble_.empty()) trouble_ = system_error("cannot read " + path).message;
  return true;
}

}  // namespace sgd::cli

#include "launcher/client/run_folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <sgd/trainer.hpp>

namespace sgd::client {
namespace {

namespace fs = std::filesystem;

constexpr const char* kManifest = "manifest.json";  // Written last.
constexpr unsigned kExchange = 2;                   // RENAME_EXCHANGE.

[[noreturn]] void fail(const std::string& path, int code) {
  throw TrainerError(path + ": " + std::strerror(code));
}

void sync(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail(path, errno);
  const int done = ::fsync(fd);
  const int code = errno;
  ::close(fd);
  if (done != 0) fail(path, code);
}

/// Behind `checkpoints/step-`.
std::int64_t step_of(const std::string& name) {
  constexpr std::size_t kFront = 5;  // "step-"
  return name.starts_with("step-") ? std::strtoll(name.c_str() + kFront, nullptr, 10) : -1;
}

}  // namespace

std::optional<std::string> LineFollower::next() {
  std::size_t end = read_.find('\n');
  if (end == std::string::npos) {
    read_ += tail_of(path_, place_ + read_.size());
    end = read_.find('\n');
    if (end == std::string::npos) return std::nullopt;
  }
  std::string line = read_.substr(0, end);
  read_.erase(0, end + 1);
  place_ += end + 1;
  return line;
}

std::string text_of(const std::string& path) {
  return tail_of(path, 0);
}

std::string tail_of(const std::string& path, std::uint64_t from) {
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(from));
  if (!file) return {};
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::uint64_t size_of(const std::string& path) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  return error ? 0 : size;
}

nlohmann::json json_of(const std::string& path) {
  nlohmann::json json = nlohmann::json::parse(text_of(path), nullptr, false);
  return json.is_discarded() ? nlohmann::json() : json;
}

nlohmann::json last_report(const std::string& run_dir, const std::string& phase, int epoch) {
  nlohmann::json found;
  LineFollower lines(run_dir + "/metrics.jsonl");
  while (const auto line = lines.next()) {
    nlohmann::json report = nlohmann::json::parse(*line, nullptr, false);
    if (!report.is_object()) continue;
    // Ranks may report anything under these names, too.
    const nlohmann::json none;
    const bool fits = report.value("phase", none) == phase && (epoch == 0 || report.value("epoch", none) == epoch);
    if (fits) found = std::move(report);
  }
  return found;
}

std::string early_stop_of(const std::string& run_dir) {
  const nlohmann::json last = last_report(run_dir, "validate", 0);
  const nlohmann::json reason = last.is_object() ? last.value("early_stop", nlohmann::json()) : nlohmann::json();
  return reason.is_string() ? reason.get<std::string>() : std::string();
}

nlohmann::json results_of(const nlohmann::json& summary) {
  nlohmann::json results = summary.is_object() ? summary.value("results", nlohmann::json()) : nlohmann::json();
  return results.is_array() ? results : nlohmann::json::array();
}

bool is_checkpoint(const std::string& folder) {
  std::error_code error;
  return fs::is_regular_file(folder + "/" + kManifest, error);
}

std::string newest_checkpoint(const std::string& run_dir) {
  std::error_code error;
  std::string newest;
  std::int64_t step = -1;
  for (const fs::directory_entry& entry : fs::directory_iterator(run_dir + "/checkpoints", error)) {
    const std::string name = entry.path().filename().string();
    // With equal steps the later generation's.
    const bool is_newer = step_of(name) > step || (step_of(name) == step && entry.path().string() > newest);
    if (step_of(name) < 0 || !is_newer || !is_checkpoint(entry.path().string())) continue;
    step = step_of(name);
    newest = entry.path().string();
  }
  return newest;
}

std::string run_on_cluster(const std::string& checkpoint) {
  const std::string run_dir = fs::path(checkpoint).parent_path().parent_path().string();
  const nlohmann::json note = json_of(run_dir + "/cluster.json");
  const nlohmann::json run = note.is_object() ? note.value("run", nlohmann::json()) : nlohmann::json();
  if (run.is_string() && newest_checkpoint(run_dir) == checkpoint) return run.get<std::string>();
  throw TrainerError(checkpoint + ": it is not the newest checkpoint of a run of the cluster, which has no others");
}

int epochs_done(const std::string& checkpoint) {
  const nlohmann::json state = json_of(checkpoint + "/state.json");
  const nlohmann::json place = state.is_object() ? state.value("position", nlohmann::json::object()) : nlohmann::json();
  if (!place.is_object() || !place.value("epoch", nlohmann::json()).is_number_integer())
    throw TrainerError(checkpoint + ": its state.json says no epoch");
  return place["epoch"].get<int>() - 1;
}

std::string new_folder(const std::string& name) {
  for (int number = 1;; ++number) {
    const std::string path = number == 1 ? name : name + "-" + std::to_string(number);
    if (::mkdir(path.c_str(), 0777) == 0) return path;
    if (errno != EEXIST) fail(path, errno);
  }
}

void copy_checkpoint(const std::string& from, const std::string& to) {
  std::error_code error;
  if (fs::exists(to, error) && !is_checkpoint(to))
    throw TrainerError(to + ": it is there already, and no checkpoint: name another folder");
  const fs::path target = fs::absolute(to, error);
  const std::string parent = target.parent_path().string();
  fs::create_directories(parent, error);
  if (error) fail(parent, error.value());
  const std::string part = new_folder(parent + "/.saving-" + std::to_string(::getpid()));
  try {
    for (const fs::directory_entry& entry : fs::directory_iterator(from, error)) {
      const std::string copy = part + "/" + entry.path().filename().string();
      fs::copy_file(entry.path(), copy, error);
      if (error) fail(copy, error.value());
      sync(copy);
    }
    if (error) fail(from, error.value());
    sync(part);
    const bool is_there = fs::exists(target, error);
    if (::syscall(SYS_renameat2, AT_FDCWD, part.c_str(), AT_FDCWD, target.c_str(), is_there ? kExchange : 0U) != 0)
      fail(target.string(), errno);
    sync(parent);
  } catch (...) {
    fs::remove_all(part, error);
    throw;
  }
  fs::remove_all(part, error);  // What was there before, where there was something.
}

}  // namespace sgd::client

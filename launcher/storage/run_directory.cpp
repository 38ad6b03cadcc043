#include "launcher/storage/run_directory.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "common/checkpoint/manifest.hpp"
#include "common/json/json_file.hpp"
#include "common/json/lenient.hpp"
#include "common/json/words.hpp"
#include "launcher/core/outcome_json.hpp"
#include "launcher/storage/ahead_checkpoints.hpp"
#include "launcher/storage/folder_anchor.hpp"
#include "launcher/storage/latest_run.hpp"
#include "launcher/storage/private_folder.hpp"

namespace sgd::storage {
namespace fs = std::filesystem;
namespace {

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// RaySGD's keys of a report's time; with its further keys the local date, too.
void stamp(nlohmann::ordered_json& line, double unix_s) {
  const auto whole = static_cast<std::time_t>(unix_s);
  line["_timestamp"] = static_cast<std::int64_t>(whole);
  if (!line.contains("_time_total_s")) return;
  std::tm local{};
  char text[32] = "";
  if (::localtime_r(&whole, &local) != nullptr) (void)std::strftime(text, sizeof text, "%Y-%m-%d_%H-%M-%S", &local);
  line["_date"] = text;
}

std::string dump(const nlohmann::ordered_json& json, int indent = -1) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Status write_all(int fd, const std::string& bytes, const std::string& path) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error("cannot write " + path);
    done += static_cast<std::size_t>(count);
  }
  return {};
}

enum class Flush { kLater, kNow };

/// `kNow`: a power failure leaves the old bytes or the new ones.
Status write_file(const std::string& path, const std::string& bytes, Flush flush = Flush::kLater) {
  const std::string temporary = path + ".tmp";
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return system_error("cannot create " + temporary);
  Status written = write_all(fd, bytes, temporary);
  if (written && flush == Flush::kNow && ::fsync(fd) != 0) written = system_error("cannot sync " + temporary);
  // A network file system may say only here that its disk or a quota is full.
  if (::close(fd) != 0 && written) written = system_error("cannot write " + temporary);
  if (written && ::rename(temporary.c_str(), path.c_str()) != 0) written = system_error("cannot rename to " + path);
  if (!written) (void)::unlink(temporary.c_str());  // Ignoring: the next one takes its place.
  return written;
}

/// Whoever looks whether a run is live holds its lock for a moment, too (is_run_live()).
constexpr int kLockTries = 50;
constexpr int kLockPauseMs = 2;

/// A descriptor that holds the folder's lock; it needs no file, and a killed process has let go of it.
Result<int> lock_folder(const std::string& directory, int flags) {
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);
  if (fd < 0) return system_error("cannot open " + directory);
  for (int tries = 0; tries < kLockTries; ++tries) {
    // File systems without locks have none to offer: then the control socket alone tells that a run is live.
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return fd;
    (void)::poll(nullptr, 0, kLockPauseMs);
  }
  ::close(fd);
  return Error{"run directory " + directory + " is in use by another sgd-launch", EWOULDBLOCK};
}

/// `file` keeps its first whole lines. An error if somebody wrote since they were counted.
Status cut_off(const std::string& directory, const LinesEnd& end) {
  const std::string path = directory + "/" + end.file;
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(path, error);
  if (error == std::errc::no_such_file_or_directory && end.bytes == 0) return {};
  if (error) return Error{fmt::format("{}: {}", path, error.message())};
  if (bytes != end.bytes) return Error{path + " has changed meanwhile: is the run still going on?"};
  if (end.whole_bytes == end.bytes) return {};
  fs::resize_file(path, end.whole_bytes, error);
  if (error) return Error{fmt::format("cannot cut off the torn end of {}: {}", path, error.message())};
  return {};
}

Status keep_job(const std::string& path, const nlohmann::json& job) {
  return json::read_file(path) == job ? Status{} : write_file(path, dump(job, 2) + "\n", Flush::kNow);
}

/// The job.json that workers have gone on with last, while it is not known whether they can with the new one.
constexpr const char* kFormerJob = "/job.former.json";

std::string new_id(const std::string& name) {
  std::string clean;
  for (const char c : name) clean += std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' ? c : '-';
  if (clean.size() > 64) clean.resize(64);
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &local);
  std::uint16_t noise = 0;
  if (::getrandom(&noise, sizeof noise, 0) != sizeof noise) noise = static_cast<std::uint16_t>(::getpid());
  return fmt::format("{}-{}-{:04x}", clean, stamp, noise);
}

/// The folder itself or the nearest one above it that exists must let us create files.
Status check_writable(const fs::path& directory) {
  fs::path existing = directory;
  std::error_code error;
  while (!fs::exists(existing, error) && existing.has_relative_path()) existing = existing.parent_path();
  if (!fs::is_directory(existing, error)) return Error{fmt::format("{} is not a folder", existing.string())};
  if (::access(existing.c_str(), W_OK | X_OK) != 0)
    return system_error(fmt::format("cannot write to {}", existing.string()));
  return {};
}

/// A run that could not begin, as on a full disk, leaves no folder. `files`: the way to what is in it.
void remove_unbegun(const std::string& files, const std::string& directory) {
  std::error_code ignored;
  for (const char* own : {"job.json", "events.jsonl", "metrics.jsonl", "checkpoints", "logs", "errors"})
    fs::remove(fs::path(files) / own, ignored);
  fs::remove(directory, ignored);
}

/// `given`: the folder as somebody has typed it.
Error holds_another(const std::string& directory, const std::string& given) {
  const bool is_experiment = member(json::read_ordered_file(directory + "/job.json"), "tune").is_object();
  return Error{fmt::format(
      "run directory {} holds {}: sgd-launch {} {} continues it; name another folder for a new one", directory,
      is_experiment ? "an experiment" : "a run", is_experiment ? "tune --resume" : "resume", given)};
}

}  // namespace

Result<RunPlace> choose_run_place(const std::string& name, const std::string& given_dir, const std::string& runs_dir) {
  RunPlace place;
  std::error_code error;
  // Hundreds a second share a second, and four digits are soon drawn twice.
  do place.id = new_id(name);
  while (given_dir.empty() && fs::exists(fs::path(runs_dir) / place.id, error));
  const fs::path given = given_dir.empty() ? fs::path(runs_dir) / place.id : fs::path(given_dir);
  fs::path directory = fs::absolute(given, error).lexically_normal();
  if (!directory.has_filename()) directory = directory.parent_path();  // A slash at the end.
  if (error) return Error{fmt::format("run directory {}: {}", given.string(), error.message())};
  place.directory = directory.string();
  if (const Status named = json::check_path("run directory", place.directory); !named) return named.error();
  if (fs::is_symlink(directory, error) && !fs::exists(directory, error))
    return Error{
        fmt::format("run directory {} is a dangling link: remove it, or name another folder", place.directory)};
  if (fs::exists(directory, error)) {
    if (!fs::is_directory(directory, error))
      return Error{fmt::format("run directory {} is not a folder", place.directory)};
    if (fs::exists(directory / "events.jsonl", error)) return holds_another(place.directory, given.string());
    if (!fs::is_empty(directory, error) || error)
      return Error{fmt::format("run directory {} is in use (it is not empty): name another one with --run-dir",
                               place.directory)};
  }
  const Status writable = check_writable(directory);
  if (!writable && given_dir.empty()) return writable.error();  // Nobody has named the run's own folder.
  if (!writable)
    return Error{fmt::format("run directory {}: {}", place.directory, writable.error().message), writable.error().code};
  if (!given_dir.empty()) place.id = directory.filename().string();
  return place;
}

Result<std::unique_ptr<RunDirectory>> RunDirectory::lock(const RunPlace& place) {
  if (const Status named = json::check_path("run directory", place.directory); !named) return named.error();
  std::unique_ptr<RunDirectory> run(new RunDirectory(place));
  const bool is_exchangeable = can_be_exchanged(place.directory);
  const Result<int> lock = lock_folder(place.directory, is_exchangeable ? O_NOFOLLOW : 0);
  if (!lock) return lock.error();
  run->lock_fd_ = lock.value();
  if (!is_exchangeable) return run;
  auto path = path_by_descriptor(run->lock_fd_, place.directory);
  if (!path) return path.error();
  if (!place.is_lasting) run->path_ = std::move(path).value();
  return run;
}

Result<std::unique_ptr<RunDirectory>> RunDirectory::make(const RunPlace& place) {
  if (const Status folder = make_private_folder(place.directory); !folder) return folder.error();
  return lock(place);
}

Result<std::unique_ptr<RunDirectory>> RunDirectory::create(const RunPlace& place, const nlohmann::json& resolved_job) {
  std::error_code error;
  const bool was_there = fs::exists(fs::symlink_status(place.directory, error));
  Result<std::unique_ptr<RunDirectory>> made = make(place);
  if (!made) return made.error();
  std::unique_ptr<RunDirectory> run = std::move(made).value();
  const bool is_empty = fs::is_empty(run->path_, error) && !error;
  const bool is_anchored = run->path_ != place.directory;
  if (is_anchored && !is_empty)
    return Error{fmt::format("run directory {} is in use (it is not empty)", place.directory)};
  Status begun = write_file(run->path_ + "/job.json", dump(resolved_job, 2) + "\n");
  if (begun) begun = run->open_files();
  // Under the lock, and only what was not there: another launcher may have been given the same folder.
  if (!begun && !was_there && is_empty) remove_unbegun(run->path_, place.directory);
  if (!begun) return begun.error();
  point_latest(place.directory, resolved_job);
  return run;
}

Result<std::unique_ptr<RunDirectory>> RunDirectory::adopt(const RunPlace& place, const nlohmann::json& resolved_job,
                                                          const LineCounts& kept) {
  Result<std::unique_ptr<RunDirectory>> made = make({place.id, place.directory, true});
  if (!made) return made.error();
  std::unique_ptr<RunDirectory> run = std::move(made).value();
  const Status job = resolved_job.is_null() ? Status{} : keep_job(run->path_ + "/job.json", resolved_job);
  if (!job) return job.error();
  const Status opened = run->open_files(kept);
  if (!opened) return opened.error();
  std::error_code error;
  run->has_former_job_ = fs::exists(run->path_ + kFormerJob, error);
  return run;
}

Result<std::unique_ptr<RunDirectory>> RunDirectory::reopen(const RunPlace& place, const nlohmann::json& resolved_job,
                                                           const RunHistory& history) {
  Result<std::unique_ptr<RunDirectory>> made = lock(place);
  if (!made) return made.error();
  std::unique_ptr<RunDirectory> run = std::move(made).value();
  for (const LinesEnd* end : {&history.events_end, &history.metrics_end}) {
    const Status cut = cut_off(run->path_, *end);
    if (!cut) return cut.error();
  }
  const Status job = run->replace_job(resolved_job, history);
  if (!job) return job.error();
  const Status opened = run->open_files();
  if (!opened) return opened.error();
  if (const Status put = put_ahead(run->path_, history.ahead); !put) return put.error();
  point_latest(place.directory, resolved_job);
  // It tells of the life before: should this one be killed, the run must not look as if it had ended that way.
  (void)::unlink((run->path_ + "/summary.json").c_str());
  return run;
}

/// Whether a checkpoint's tensors are those of a changed job only the workers can tell.
Status RunDirectory::replace_job(const nlohmann::json& job, const RunHistory& history) {
  const std::string path = path_ + "/job.json";
  std::error_code error;
  // A life that was killed before anything was restored has left it: it is still what works.
  has_former_job_ = fs::exists(path_ + kFormerJob, error);
  const bool is_restored = !member(job, "training").is_null() && !history.past.checkpoints.empty();
  if (!is_restored) forget_former_job();
  if (is_restored && !has_former_job_ && json::read_file(path) != job) {
    const Result<std::string> text = json::text_of_file(path);
    if (text)
      if (const Status kept = write_file(path_ + kFormerJob, text.value(), Flush::kNow); !kept) return kept;
    has_former_job_ = text.ok();  // The copy of a run has none yet: the other run keeps its own.
  }
  return keep_job(path, job);
}

Status RunDirectory::put_back_job() {
  has_former_job_ = false;
  const std::string path = path_ + "/job.json";
  if (::rename((path_ + kFormerJob).c_str(), path.c_str()) == 0) return {};
  return system_error(fmt::format("cannot put back {} from {}{}", path, path_, kFormerJob));
}

void RunDirectory::forget_former_job() {
  if (std::exchange(has_former_job_, false)) (void)::unlink((path_ + kFormerJob).c_str());  // Ignoring: it may be gone.
}

Status RunDirectory::open_files(const std::optional<LineCounts>& kept) {
  std::error_code error;
  for (const char* folder : {"checkpoints", "logs", "errors"}) {
    fs::create_directories(fs::path(path_) / folder, error);
    if (error) return Error{fmt::format("cannot create {}/{}: {}", path_, folder, error.message())};
  }
  const auto count_of = [&](std::int64_t LineCounts::*file) {
    return kept ? std::optional((*kept).*file) : std::optional<std::int64_t>();
  };
  auto events = LineFile::open(path_ + "/events.jsonl", count_of(&LineCounts::events));
  if (!events) return events.error();
  events_.emplace(std::move(events).value());
  auto metrics = LineFile::open(path_ + "/metrics.jsonl", count_of(&LineCounts::metrics));
  if (!metrics) return metrics.error();
  metrics_.emplace(std::move(metrics).value());
  return {};
}

RunDirectory::~RunDirectory() {
  if (lock_fd_ >= 0) ::close(lock_fd_);
}

Status RunDirectory::append_event(const nlohmann::ordered_json& event, std::optional<double> unix_s) {
  const std::string name = read_or(event, "event", "");
  if (name == "restored" || name == "first_step") forget_former_job();
  // Formatted by hand: JSON libraries print 6 decimals of a Unix time differently from run to run.
  std::string rest = dump(event);
  rest.erase(0, 1);
  return events_->append(fmt::format("{{\"time\":{:.6f},{}\n", unix_s.value_or(unix_seconds()), rest));
}

Status RunDirectory::append_metrics(const nlohmann::ordered_json& metrics, std::optional<double> unix_s) {
  nlohmann::ordered_json line = metrics;
  const double time_s = unix_s.value_or(unix_seconds());
  stamp(line, time_s);
  if (const auto workers = line.find("workers"); workers != line.end() && workers->is_array())
    for (nlohmann::ordered_json& worker : *workers)
      if (worker.is_object()) stamp(worker, time_s);
  return metrics_->append(dump(line) + "\n");
}

nlohmann::ordered_json summary_of(const RunId& run, const core::RunOutcome& outcome) {
  nlohmann::ordered_json summary = {{"schema_version", 1}, {"run", run}};
  summary.update(core::to_json(outcome));
  return summary;
}

/// Before the summary: whoever has read that goes on with the job that is there.
Status RunDirectory::write_summary(const core::RunOutcome& outcome) {
  const bool is_final = outcome.cause && outcome.cause->is_final;
  const Status job = has_former_job_ && is_final ? put_back_job() : Status{};
  const Status written = rewrite_summary(path_, place_.id, outcome);
  return written ? job : written;
}

Status RunDirectory::change_job(const nlohmann::json& resolved_job) {
  return keep_job(path_ + "/job.json", resolved_job);
}

/// What is saved is never written to again, so that links are copies. A killed launcher leaves no half of one.
Status RunDirectory::take_checkpoint(const std::string& from, const std::string& to) {
  std::error_code error;
  if (fs::exists(to, error)) return {};
  const std::string half = to + ".tmp";
  fs::remove_all(half, error);
  fs::create_directories(fs::path(to).parent_path(), error);
  if (!error) fs::copy(from, half, fs::copy_options::recursive | fs::copy_options::create_hard_links, error);
  if (!error) fs::rename(half, to, error);
  if (error) return Error{fmt::format("cannot copy {} to {}: {}", from, to, error.message()), error.value()};
  return {};
}

Status RunDirectory::remove_summary() {
  const std::string path = path_ + "/summary.json";
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return system_error("cannot remove " + path);
  return {};
}

Status RunDirectory::write_best(const nlohmann::ordered_json& best) {
  nlohmann::ordered_json out = {{"schema_version", 1}};
  out.update(best);
  return write_file(path_ + "/best.json", dump(out, 2) + "\n");
}

Status rewrite_summary(const std::string& folder, const RunId& run, const core::RunOutcome& outcome) {
  return write_file(folder + "/summary.json", dump(summary_of(run, outcome), 2) + "\n");
}

Status link_control_socket(const std::string& folder, const std::string& target, const std::string& shown) {
  const std::string path = folder + "/" + kControlSocket;
  (void)::unlink(path.c_str());
  if (::symlink(target.c_str(), path.c_str()) != 0) return system_error("cannot create " + path);
  const fs::path socket(target);
  std::error_code ignored;  // Without it the run has no name where its launcher does not answer.
  if (socket.filename() == kControlSocket)
    fs::create_directory_symlink(shown.empty() ? folder : shown, socket.parent_path() / kRunLink, ignored);
  return {};
}

void RunDirectory::unlink_control_socket() {
  (void)::unlink((path_ + "/control.sock").c_str());
}

/// Of those that lie in the folder.
std::vector<std::string> RunDirectory::names_of(const std::vector<std::string>& paths) const {
  const fs::path folder = fs::path(path_) / checkpoint::kDirectory;
  std::vector<std::string> names;
  for (const std::string& path : paths) {
    const fs::path whole = fs::path(path_) / path;  // What is absolute stays so.
    if (whole.parent_path() == folder) names.push_back(whole.filename().string());
  }
  return names;
}

void RunDirectory::keep_checkpoints(const std::vector<std::string>& paths) {
  kept_ = names_of(paths);
  prune();
}

void RunDirectory::spare_checkpoints(const std::vector<std::string>& paths) {
  spared_ = names_of(paths);
  if (!kept_.empty()) prune();
}

void RunDirectory::prune() {
  std::vector<std::string> names = kept_;
  names.insert(names.end(), spared_.begin(), spared_.end());
  pruner_.keep((fs::path(path_) / checkpoint::kDirectory).string(), std::move(names));
}

}  // namespace sgd::storage

#include "launcher/callbacks/event_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "common/json/lenient.hpp"
#include "launcher/callbacks/fresh_file.hpp"
#include "launcher/process/clock.hpp"
#include "launcher/process/own_path.hpp"

namespace sgd::callbacks {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kEventFileFront = "events.out.tfevents.";

/// What of a file is read at a time.
constexpr std::size_t kEventPieceBytes = 1 << 20;

}  // namespace

EventFile::EventFile(std::string folder, std::string tag, const nlohmann::json& callback, nlohmann::json job)
    : folder_(std::move(folder)), tag_(std::move(tag)), filter_(callback), job_(std::move(job)) {
  options_.prefix = read_or(callback, "prefix", options_.prefix);
  options_.step = read_or(callback, "step", options_.step);
}

/// The one that is there, or the name of a new one.
Result<std::string> EventFile::own_file() const {
  std::error_code error;
  std::string newest;
  for (fs::directory_iterator at(folder_, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with(kEventFileFront) && name.ends_with("." + tag_)) newest = std::max(newest, name);
  }
  if (error) return Error{fmt::format("cannot read {}: {}", folder_, error.message()), error.value()};
  if (newest.empty())
    newest = fmt::format("{}{:010}.{}", kEventFileFront, static_cast<std::int64_t>(process::unix_seconds()), tag_);
  return folder_ + "/" + newest;
}

Result<std::int64_t> EventFile::begin() {
  held_.clear();
  if (const Status made = make_folder(folder_); !made) return made.error();
  auto path = own_file();
  if (!path) return path.error();
  path_ = std::move(path).value();
  using process::OwnPath;
  const auto place = OwnPath::find(path_, OwnPath::Folders::kMustBeThere, OwnPath::LastLink::kStays);
  if (!place) return Error{"cannot open " + path_ + ": " + place.error().message, place.error().code};
  file_ = place.value().open(O_RDWR | O_CREAT, 0644);
  if (!file_) return system_error("cannot open " + path_);
  return count_records();
}

/// And cuts off what is behind the last whole one, if it was cut short.
Result<std::int64_t> EventFile::count_records() {
  size_ = 0;
  std::int64_t reports = 0;
  bool has_hparams = false;
  std::string bytes;
  for (bool is_at_end = false; !is_at_end;) {
    const std::size_t before = bytes.size();
    bytes.resize(before + kEventPieceBytes);
    const ssize_t count =
        ::pread(file_.get(), bytes.data() + before, kEventPieceBytes, static_cast<off_t>(size_ + before));
    if (count < 0) return system_error("cannot read " + path_);
    bytes.resize(before + static_cast<std::size_t>(count));
    is_at_end = count == 0;
    std::size_t begin = 0;
    while (const auto record = first_record(std::string_view(bytes).substr(begin))) {
      reports += is_report_event(*record) ? 1 : 0;
      has_hparams = has_hparams || is_hparams_event(*record);
      begin += record->size() + kRecordFrameBytes;
    }
    bytes.erase(0, begin);
    size_ += begin;
  }
  if (!bytes.empty() && ::ftruncate(file_.get(), static_cast<off_t>(size_)) != 0)
    return system_error("cannot cut off the torn end of " + path_);
  const double now = process::unix_seconds();
  if (size_ == 0) held_ += framed_record(version_event(now));
  if (!has_hparams) held_ += framed_record(hparams_event(job_, now));
  return reports;
}

Result<Taken> EventFile::add(const Report& report) {
  held_ += framed_record(report_event(report, filter_, options_));
  if (held_.size() < kHeldBytesMax) return Taken::kYes;
  if (const Status written = flush(); !written) return written.error();
  return Taken::kYes;
}

Status EventFile::flush() {
  if (held_.empty()) return {};
  const Status written = append_whole(file_.get(), size_, held_, path_);
  if (!written) return written;
  size_ += held_.size();
  held_.clear();
  return {};
}

Status EventFile::end(bool succeeded) {
  held_ += framed_record(session_end_event(succeeded, process::unix_seconds()));
  return flush();
}

}  // namespace sgd::callbacks

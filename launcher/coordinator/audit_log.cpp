#include "launcher/coordinator/audit_log.hpp"

#include <sys/stat.h>

#include <cstdio>

#include <fmt/format.h>

#include "common/base/assert.hpp"
#include "launcher/process/clock.hpp"

namespace sgd::coordinator {

/// What was done stays said.
AuditLog::~AuditLog() {
  if (files_) files_->finish();
}

Status AuditLog::open(const std::string& state_dir) {
  path_ = state_dir + "/audit.jsonl";
  return reopen();
}

Status AuditLog::reopen() {
  auto file = storage::LineFile::open(path_);
  if (!file) return file.error();
  file_ = std::make_shared<storage::LineFile>(std::move(file).value());
  struct stat info {};
  file_number_ = ::stat(path_.c_str(), &info) == 0 ? info.st_ino : 0;
  return {};
}

/// Whoever writes next begins the new file; others find it there.
Status AuditLog::rotate() {
  struct stat info {};
  const bool is_there = ::stat(path_.c_str(), &info) == 0;
  if (is_there && info.st_ino == file_number_ && info.st_size < file_bytes_max) return {};
  if (is_there && info.st_size >= file_bytes_max) {
    const auto older = [this](int number) { return fmt::format("{}.{}", path_, number); };
    for (int number = kFilesMax - 2; number >= 1; --number)
      (void)::rename(older(number).c_str(), older(number + 1).c_str());  // Ignoring: it may not be there yet.
    if (::rename(path_.c_str(), older(1).c_str()) != 0) return system_error("cannot rename " + path_);
  }
  return reopen();
}

void AuditLog::add(const Requester& who, const std::string& action, const Json& about, const std::string& refused) {
  SGD_ASSERT(file_);
  Json line = {{"time", process::unix_seconds()},
               {"who", who.name.empty() ? "anybody" : who.name},
               {"certificate", who.certificate},
               {"peer", who.peer},
               {"action", action}};
  if (who.uid) line["uid"] = *who.uid;
  line.update(about);
  if (!refused.empty()) line["refused"] = refused;
  if (const Status ready = rotate(); !ready) on_trouble_("the audit log: " + ready.error().message);
  const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  const auto write = [file = file_, text] { return file->append(text); };
  const auto note = [this](const Status& written) {
    if (!written) on_trouble_("the audit log: " + written.error().message);
  };
  if (!files_) return note(write());
  // Whoever asks faster than the disk takes lines must not fill the memory with them.
  const bool is_full = files_->waiting() >= lines_max;
  if (is_full && !is_full_)
    on_trouble_(fmt::format("the audit log: {} lines wait for the disk, more are left out", lines_max));
  is_full_ = is_full;
  if (!is_full) files_->ask(write, note);
}

}  // namespace sgd::coordinator

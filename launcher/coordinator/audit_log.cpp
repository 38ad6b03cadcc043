#include "launcher/coordinator/audit_log.hpp"

#include <sys/stat.h>

#include <cstdio>
#include <fstream>

#include <fmt/format.h>

#include "common/base/assert.hpp"
#include "launcher/process/clock.hpp"

namespace sgd::coordinator {
namespace {

/// A crash, or who knows who, has left half a line: the next one would be lost with it.
bool ends_inside_line(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file || file.tellg() <= 0) return false;
  file.seekg(-1, std::ios::end);
  return file.get() != '\n';
}

}  // namespace

std::string AuditLog::damage_in(const std::string& state_dir) {
  const std::string path = state_dir + "/audit.jsonl";
  std::ifstream file(path, std::ios::binary);
  std::int64_t number = 0, damaged = 0, first = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (!file.eof() && line.starts_with('{') && Json::accept(line)) continue;
    if (damaged++ == 0) first = number;
  }
  if (damaged == 0) return {};
  return fmt::format(
      "{} is damaged: {} of its {} lines cannot be read, from line {} on. What they said of who did what is nowhere "
      "else: look whether there is a copy of the file. New lines are written behind them",
      path, damaged, number, first);
}

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
  if (ends_inside_line(path_))
    if (const Status ended = file_->append("\n"); !ended) return ended;
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

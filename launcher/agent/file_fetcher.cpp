#include "launcher/agent/file_fetcher.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "common/checkpoint/manifest.hpp"

namespace sgd::agent {

using transfer::kChunkBytesMax;
using transfer::kWindowBytes;

namespace {

/// What a listing must be before anything is asked for.
std::string fault_of(const std::vector<transfer::ListedFile>& files) {
  if (files.empty() || files.size() > transfer::kListedFilesMax)
    return fmt::format("{} files are listed", files.size());
  std::set<std::string> names;
  for (const transfer::ListedFile& file : files) {
    if (!transfer::is_part(file.name) || file.bytes < 0) return "a file is listed that cannot be";
    if (!names.insert(file.name).second) return "a file is listed twice";
  }
  return names.contains(checkpoint::kManifestFile) ? "" : "no manifest is listed";
}

}  // namespace

bool FileFetcher::is_current(const RunId& run, const std::string& path) const {
  return !queue_.empty() && queue_.front().run == run && queue_.front().path == path;
}

void FileFetcher::fetch(const RunId& run, const std::string& path, std::shared_ptr<storage::Incoming> files,
                        Handlers handlers) {
  const auto same = std::find_if(queue_.begin(), queue_.end(),
                                 [&](const Fetch& fetch) { return fetch.run == run && fetch.path == path; });
  if (same != queue_.end()) return same->handlers.push_back(std::move(handlers));
  Fetch fetch;
  fetch.run = run;
  fetch.path = path;
  fetch.files = std::move(files);
  fetch.handlers.push_back(std::move(handlers));
  fetch.number = next_number_++;
  queue_.push_back(std::move(fetch));
  if (queue_.size() == 1) begin();
}

void FileFetcher::forget(const RunId& run) {
  const bool was_first = !queue_.empty() && queue_.front().run == run;
  std::erase_if(queue_, [&](const Fetch& fetch) { return fetch.run == run; });
  if (was_first && !queue_.empty()) begin();
}

/// Asks what the first one consists of; also after a lost connection.
void FileFetcher::begin() {
  Fetch& fetch = queue_.front();
  if (fetch.is_finishing) return;
  fetch.parts.clear();
  fetch.in_flight = 0;
  fetch.unanswered = 0;
  link_.send(transfer::Get{fetch.run, fetch.path, "", 0, 0});
}

void FileFetcher::on_open() {
  if (!queue_.empty()) begin();
}

void FileFetcher::on(const transfer::Pending& pending) {
  if (!is_current(pending.run, pending.path)) return;
  for (const Handlers& handlers : queue_.front().handlers)
    if (handlers.on_bytes) handlers.on_bytes(pending.bytes);
}

bool FileFetcher::on(const transfer::Refused& refused) {
  if (!is_current(refused.run, refused.path)) return false;
  end({refused.reason, !refused.unknown_run});
  return true;
}

void FileFetcher::on(const transfer::Listing& listing) {
  if (!is_current(listing.run, listing.path) || !queue_.front().parts.empty() || queue_.front().is_finishing) return;
  const std::string fault = fault_of(listing.files);
  if (!fault.empty()) return end({"the coordinator's answer cannot be used: " + fault, true});
  const Fetch& fetch = queue_.front();
  const auto look = [files = fetch.files, path = fetch.path, listed = listing.files] {
    std::vector<Part> parts;
    for (const transfer::ListedFile& file : listed) {
      storage::Held held = files->held(path + "/" + file.name);
      // A whole one that was cut short comes anew: otherwise it would be short whenever somebody wants it.
      if (held.is_stored && static_cast<std::int64_t>(held.bytes) < file.bytes)
        held = files->append(path + "/" + file.name, static_cast<std::uint64_t>(file.bytes), {});
      const std::int64_t have = std::min(static_cast<std::int64_t>(held.bytes), file.bytes);
      parts.push_back({file, have, have});
    }
    return std::pair(files->is_stored(path), parts);
  };
  thread_.ask(look, [this, number = fetch.number](std::pair<bool, std::vector<Part>> found) {
    if (queue_.empty() || queue_.front().number != number || !queue_.front().parts.empty()) return;
    if (found.first) return end({});
    queue_.front().parts = std::move(found.second);
    ask_more();
  });
}

void FileFetcher::ask_more() {
  Fetch& fetch = queue_.front();
  bool is_complete = true;
  for (Part& part : fetch.parts) {
    while (part.asked < part.file.bytes && fetch.in_flight < kWindowBytes && fetch.unanswered < kAskedMax) {
      const std::int64_t bytes = std::min(kChunkBytesMax, part.file.bytes - part.asked);
      link_.send(transfer::Get{fetch.run, fetch.path, part.file.name, part.asked, bytes});
      part.asked += bytes;
      fetch.in_flight += bytes;
      ++fetch.unanswered;
    }
    is_complete = is_complete && part.written == part.file.bytes;
  }
  if (is_complete && !fetch.is_finishing) finish();
}

void FileFetcher::on(const transfer::Data& data, std::string bytes) {
  if (!is_current(data.run, data.path)) return;
  Fetch& fetch = queue_.front();
  const auto part =
      std::find_if(fetch.parts.begin(), fetch.parts.end(), [&](const Part& one) { return one.file.name == data.file; });
  if (part == fetch.parts.end()) return;
  const std::int64_t wanted = std::min(kChunkBytesMax, part->file.bytes - data.offset);
  fetch.in_flight = std::max<std::int64_t>(0, fetch.in_flight - wanted);
  fetch.unanswered = std::max(0, fetch.unanswered - 1);
  const std::string file = data.path + "/" + data.file;
  const bool is_next = data.offset == part->written && data.bytes > 0;
  if (is_next && transfer::checksum(data.run, file, data.offset, bytes) == data.crc32c) {
    part->written += data.bytes;
    if (data.bytes < wanted) part->asked = part->written;
    const std::int64_t expected = part->written;
    auto write = [files = fetch.files, file, offset = data.offset, bytes = std::move(bytes)] {
      return files->append(file, static_cast<std::uint64_t>(offset), bytes);
    };
    thread_.ask(std::move(write), [this, number = fetch.number, expected](const storage::Held& held) {
      on_written(number, held, expected);
    });
  } else if (is_next || data.bytes == 0) {
    if (++fetch.damaged > kDamagedChunksMax) return end({"its bytes are damaged on their way again and again", false});
    part->asked = part->written;  // What is on its way comes too far ahead, and is dropped.
  }
  ask_more();
}

void FileFetcher::on_written(std::uint64_t number, const storage::Held& held, std::int64_t expected) {
  if (queue_.empty() || queue_.front().number != number) return;
  if (!held.error.empty() || held.is_gap || static_cast<std::int64_t>(held.bytes) < expected)
    return end({held.error.empty() ? "its file was changed meanwhile" : held.error, false});
  std::int64_t bytes = 0;
  for (const Part& part : queue_.front().parts) bytes += part.written;
  for (const Handlers& handlers : queue_.front().handlers)
    if (handlers.on_bytes) handlers.on_bytes(bytes);
}

void FileFetcher::finish() {
  Fetch& fetch = queue_.front();
  fetch.is_finishing = true;
  const auto prove = [files = fetch.files, path = fetch.path, parts = fetch.parts] {
    for (const Part& part : parts)  // Files without bytes.
      if (part.file.bytes == 0) (void)files->append(path + "/" + part.file.name, 0, {});
    return files->finish(path);
  };
  thread_.ask(prove, [this, number = fetch.number](const Status& finished) {
    if (queue_.empty() || queue_.front().number != number) return;
    Fetch& done = queue_.front();
    done.is_finishing = false;
    if (finished) return end({});
    if (++done.attempts >= kAttemptsMax) return end({finished.error().message, finished.error().code == 0});
    begin();
  });
}

void FileFetcher::end(const Fetched& fetched) {
  const std::vector<Handlers> handlers = std::move(queue_.front().handlers);
  queue_.pop_front();
  if (!queue_.empty()) begin();
  for (const Handlers& one : handlers) one.on_fetched(fetched);
}

}  // namespace sgd::agent

#include "launcher/agent/file_sender.hpp"

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "common/checkpoint/manifest.hpp"

namespace sgd::agent {

using transfer::kChunkBytesMax;
using transfer::kWindowBytes;

FileSender::FileSender(boost::asio::io_context& io, storage::FileThread& thread, FileLink& link, Handlers handlers,
                       SenderTimes times)
    : thread_(thread),
      link_(link),
      handlers_(std::move(handlers)),
      times_(times),
      retry_(times.retry_first),
      gather_timer_(io),
      sweep_timer_(io),
      retry_timer_(io),
      rest_timer_(io) {
  sweep();
}

void FileSender::stop() {
  gather_timer_.cancel();
  sweep_timer_.cancel();
  retry_timer_.cancel();
  rest_timer_.cancel();
}

// ---- runs ----

void FileSender::add(const RunId& run, std::shared_ptr<storage::RunFiles> files) {
  Run& entry = runs_[run];
  entry.files = std::move(files);
  entry.is_ended = false;
  entry.is_told = false;
  entry.was_looked_at = false;
  look(run);
}

void FileSender::end(const RunId& run) {
  const auto place = runs_.find(run);
  if (place == runs_.end()) return;
  place->second.is_ended = true;
  place->second.was_looked_at = false;
  look(run);
}

void FileSender::forget(const RunId& run) {
  if (shipment_ && shipment_->run == run) drop_shipment("the run has ended there");
  const auto place = runs_.find(run);
  if (place == runs_.end()) return;
  for (auto& [file, track] : place->second.logs) {
    if (track.state == Track::State::kAsked) --queries_;
    move(track, 0, 0);
  }
  std::erase_if(ready_, [&](const Key& key) { return key.first == run; });
  runs_.erase(place);
}

void FileSender::spare(const RunId& run, const std::string& name) {
  if (const auto place = runs_.find(run); place != runs_.end()) place->second.spared = name;
}

void FileSender::look(const RunId& run) {
  const auto place = runs_.find(run);
  if (place == runs_.end()) return;
  place->second.has_news = true;
  look_soon();
}

void FileSender::look_soon() {
  if (std::exchange(is_gathering_, true)) return;
  gather_timer_.after(times_.gather, [this] {
    is_gathering_ = false;
    for (auto& [run, entry] : runs_) look_at(run, entry);
  });
}

void FileSender::sweep() {
  for (auto& [run, entry] : runs_) look_at(run, entry);
  sweep_timer_.after(times_.sweep, [this] {
    for (auto& [run, entry] : runs_) entry.has_news = true;
    sweep();
  });
}

void FileSender::look_at(const RunId& run, Run& entry) {
  if (!entry.has_news || entry.is_looking) return;
  entry.has_news = false;
  entry.is_looking = true;
  std::vector<std::string> spared;
  if (!entry.spared.empty()) spared.push_back(entry.spared);
  if (shipment_ && shipment_->run == run) spared.push_back(shipment_->path.substr(shipment_->path.rfind('/') + 1));
  const auto look = [files = entry.files, kept = entry.kept, spared] {
    if (!kept.empty()) files->prune(kept, spared);
    return files->inventory();
  };
  thread_.ask(look, [this, run, was_ended = entry.is_ended](const storage::RunFiles::Inventory& inventory) {
    on_inventory(run, was_ended, inventory);
  });
}

void FileSender::on_inventory(const RunId& run, bool was_ended, const storage::RunFiles::Inventory& inventory) {
  const auto place = runs_.find(run);
  if (place == runs_.end()) return;
  Run& entry = place->second;
  entry.is_looking = false;
  entry.was_looked_at = was_ended && entry.is_ended && inventory.unread.empty();
  if (entry.has_news) look_soon();
  note_unread(run, entry, inventory.unread);
  if (inventory.is_cut) note_cut(run, entry, inventory.names_most);
  for (const transfer::ListedFile& file : inventory.logs) {
    if (entry.logs.size() >= inventory.names_most && !entry.logs.contains(file.name)) continue;
    const auto [track, is_new] = entry.logs.try_emplace(file.name);
    if (is_new && entry.refused >= kRefusedMax)
      track->second.state = Track::State::kRefused;
    else if (is_new)
      unasked_.push_back({run, file.name});
    track->second.size = file.bytes;
    const bool is_over = track->second.state == Track::State::kEnded || track->second.state == Track::State::kEnding;
    if (is_over && file.bytes > track->second.acked) track->second.state = Track::State::kKnown;
    advance(run, file.name, track->second);
  }
  entry.waiting.clear();
  for (const std::string& name : inventory.checkpoints) {
    const auto attempts = entry.attempts.find(name);
    const bool is_given_up = attempts != entry.attempts.end() && attempts->second >= kAttemptsMax;
    if (!entry.stored.contains(name) && !is_given_up) entry.waiting.insert(name);
  }
  ask_for_offsets();
  choose_checkpoint();
  pump();
  check_end(run);
}

/// What could not be looked at is looked for again with the next sweep; until then the run is not all sent.
void FileSender::note_unread(const RunId& run, Run& entry, const std::string& unread) {
  if (entry.unread != unread && !unread.empty())
    handlers_.on_warning(fmt::format("run {}: {}; tried again in {}", run, unread, format_duration(times_.sweep)));
  entry.unread = unread;
}

/// What is not known is not sent, and so the folder stays at the end.
void FileSender::note_cut(const RunId& run, Run& entry, std::size_t names_most) {
  entry.refusal = fmt::format("its folder here has more than {} files", names_most);
  if (!std::exchange(entry.is_cut, true))
    handlers_.on_warning(fmt::format("run {}: {}, and what is beyond stays here", run, entry.refusal));
}

/// Once everything of an ended run is there, or is refused for good.
void FileSender::check_end(const RunId& run) {
  const auto place = runs_.find(run);
  if (place == runs_.end() || !place->second.is_ended || !place->second.was_looked_at) return;
  Run& entry = place->second;
  const bool is_done = entry.waiting.empty() && !entry.is_looking && !(shipment_ && shipment_->run == run) &&
                       std::all_of(entry.logs.begin(), entry.logs.end(), [](const auto& log) {
                         return log.second.state == Track::State::kEnded || log.second.state == Track::State::kRefused;
                       });
  if (!is_done && !entry.is_unknown) return;
  if (entry.refusal.empty()) {
    if (link_.is_open() && !std::exchange(entry.is_told, true)) link_.send(transfer::AllSent{run});
    return;
  }
  const std::string refusal = entry.refusal;
  forget(run);
  handlers_.on_refused(run, refusal);
}

// ---- the connection ----

void FileSender::on_lost() {
  const auto reset = [](Track& track) {
    ++track.attempt;
    track.next = track.acked = 0;
    if (track.state != Track::State::kEnded) track.state = Track::State::kUnknown;
  };
  for (auto& [run, entry] : runs_) {
    entry.is_told = false;
    for (auto& [file, track] : entry.logs) reset(track);
  }
  in_flight_ = 0;
  queries_ = 0;
  ready_.clear();
  ending_.clear();
  unended_.clear();
  unasked_.clear();
  if (shipment_) shipment_->files.clear();
}

void FileSender::on_open() {
  on_lost();
  is_paused_ = false;
  retry_timer_.cancel();
  for (auto& [run, entry] : runs_) {
    entry.is_unknown = false;
    entry.refused = 0;
    entry.refusal.clear();
    entry.stored.clear();  // It may have lost them.
    entry.has_news = true;
    for (const auto& [file, track] : entry.logs)
      if (track.state == Track::State::kUnknown) unasked_.push_back({run, file});
  }
  if (shipment_) list_shipment();
  ask_for_offsets();
  look_soon();
}

void FileSender::ask_for_offsets() {
  while (link_.is_open() && queries_ < kQueriesMax && !unasked_.empty()) {
    const Key key = unasked_.front();
    unasked_.pop_front();
    Track* track = find(key.first, key.second);
    if (track == nullptr || track->state != Track::State::kUnknown || runs_.at(key.first).is_unknown) continue;
    if (runs_.at(key.first).refused >= kRefusedMax) {
      track->state = Track::State::kRefused;
      continue;
    }
    track->state = Track::State::kAsked;
    ++queries_;
    link_.send(transfer::Query{key.first, key.second});
  }
}

void FileSender::on(const transfer::Taken& taken) {
  const auto place = runs_.find(taken.run);
  if (place == runs_.end() || !place->second.is_ended || !place->second.is_told) return;
  forget(taken.run);
  handlers_.on_all_sent(taken.run);
}

/// The coordinator cannot take anything at this moment.
void FileSender::retry_later(const std::string& reason) {
  if (std::exchange(is_paused_, true)) return;
  handlers_.on_warning(
      fmt::format("files wait for the coordinator: {}; tried again in {}", reason, format_duration(retry_)));
  retry_ = std::min(2 * retry_, times_.retry_max);
  retry_timer_.after(retry_, [this] {
    is_paused_ = false;
    for (auto& [run, entry] : runs_) entry.has_news = true;
    look_soon();
    pump();
  });
}

// ---- bytes ----

FileSender::Track* FileSender::find(const RunId& run, const std::string& file) {
  if (shipment_ && shipment_->run == run)
    for (auto& [name, track] : shipment_->files)
      if (name == file) return &track;
  const auto place = runs_.find(run);
  if (place == runs_.end()) return nullptr;
  const auto log = place->second.logs.find(file);
  return log == place->second.logs.end() ? nullptr : &log->second;
}

/// The one place that changes what is on its way.
void FileSender::move(Track& track, std::int64_t next, std::int64_t acked) {
  in_flight_ += (next - acked) - (track.next - track.acked);
  track.next = next;
  track.acked = acked;
}

void FileSender::pump() {
  while (can_put() && reads_ < kReadsMax && in_flight_ < kWindowBytes) {
    is_logs_turn_ = !is_logs_turn_;
    if (is_logs_turn_ ? !read_log() && !read_checkpoint() : !read_checkpoint() && !read_log()) return;
  }
}

bool FileSender::read_log() {
  if (ready_.empty()) return false;
  auto place = ready_.upper_bound(last_log_);
  if (place == ready_.end()) place = ready_.begin();
  last_log_ = *place;
  Track* track = find(last_log_.first, last_log_.second);
  // A few bytes wait for the answer to those before: what grows by lines makes no message of each.
  const bool is_little = track != nullptr && track->next > track->acked && track->size - track->next < kChunkBytesMax;
  if (track == nullptr || track->state != Track::State::kKnown || track->next >= track->size || is_little) {
    ready_.erase(place);
    return !ready_.empty() && read_log();
  }
  read(last_log_.first, last_log_.second, *track);
  if (track->next == track->size) ready_.erase(last_log_);
  return true;
}

void FileSender::read(const RunId& run, const std::string& file, Track& track) {
  transfer::Put next{run, file, track.next, std::min(kChunkBytesMax, track.size - track.next), 0, false};
  move(track, track.next + next.bytes, track.acked);
  ++reads_;
  struct Piece {
    Result<std::string> bytes;
    std::uint32_t crc32c = 0;
  };
  auto work = [files = runs_.at(run).files, next] {
    Piece piece{files->read(next.file, static_cast<std::uint64_t>(next.offset), static_cast<std::size_t>(next.bytes))};
    if (piece.bytes) piece.crc32c = transfer::checksum(next.run, next.file, next.offset, piece.bytes.value());
    return piece;
  };
  thread_.ask(std::move(work), [this, next, attempt = track.attempt](const Piece& piece) mutable {
    next.crc32c = piece.crc32c;
    put(next, attempt, piece.bytes);
  });
}

void FileSender::put(const transfer::Put& put, std::uint64_t attempt, const Result<std::string>& bytes) {
  --reads_;
  Track* track = find(put.run, put.file);
  if (track != nullptr && track->attempt == attempt) {
    const bool is_whole = bytes && static_cast<std::int64_t>(bytes.value().size()) == put.bytes;
    const std::string checkpoint = transfer::checkpoint_of(put.file);
    if (is_whole) {
      link_.send(put, bytes.value());
    } else if (!checkpoint.empty()) {
      const std::string why = bytes ? put.file + " has become shorter" : bytes.error().message;
      on_checkpoint_refused(runs_.at(put.run), checkpoint, why);
      choose_checkpoint();
      check_end(put.run);
    } else if ((bytes || bytes.error().code == ENOENT) && !runs_.at(put.run).is_ended) {
      look_for_again({put.run, put.file}, *track);
    } else {
      on_file_refused(runs_.at(put.run), {put.run, put.file, bytes ? "it has become shorter" : bytes.error().message});
    }
  }
  pump();
}

/// A program has removed it, and its keeper makes it again (keeper/log_file.hpp): the next look finds it.
void FileSender::look_for_again(const Key& key, Track& track) {
  ++track.attempt;
  move(track, 0, 0);
  track.size = 0;
  track.state = Track::State::kUnknown;
  ready_.erase(key);
  unasked_.push_back(key);
  runs_.at(key.first).has_news = true;
}

// ---- answers ----

void FileSender::on(const transfer::Have& have) {
  Track* track = find(have.run, have.file);
  if (track == nullptr || have.offset < 0) return;
  if (track->state == Track::State::kAsked && transfer::checkpoint_of(have.file).empty()) --queries_;
  take_answer(*track, have);
  if (have.rewind && !have.reason.empty()) retry_later(fmt::format("{}: {}", have.file, have.reason));
  note_answer(have.run, have.file);
  advance(have.run, have.file, *track);
  ask_for_offsets();
  prove_if_complete();
  pump();
  check_end(have.run);
}

void FileSender::take_answer(Track& track, const transfer::Have& have) {
  if (track.state == Track::State::kAsked || have.rewind) {
    ++track.attempt;
    track.state = Track::State::kKnown;
    return move(track, have.offset, have.offset);
  }
  if (track.state == Track::State::kEnding && have.last)
    track.state = have.offset >= track.size ? Track::State::kEnded : Track::State::kKnown;
  if (have.offset <= track.acked) return;
  retry_ = times_.retry_first;
  move(track, std::max(track.next, have.offset), have.offset);
}

/// What can be done for a log now: put more of it, or say that it has ended.
void FileSender::advance(const RunId& run, const std::string& file, Track& track) {
  const auto place = runs_.find(run);
  if (place == runs_.end() || track.state != Track::State::kKnown || !transfer::checkpoint_of(file).empty()) return;
  if (track.next < track.size) {
    ready_.insert({run, file});
  } else if (place->second.is_ended && place->second.was_looked_at && track.acked >= track.size && can_put()) {
    if (ending_.size() >= kEndingsMax) return unended_.push_back({run, file});
    ending_.insert({run, file});
    track.state = Track::State::kEnding;
    link_.send(transfer::Put{run, file, track.acked, 0, transfer::checksum(run, file, track.acked, {}), true});
  }
}

/// Another log may end.
void FileSender::note_answer(const RunId& run, const std::string& file) {
  ending_.erase({run, file});
  while (!unended_.empty() && ending_.size() < kEndingsMax) {
    const Key next = unended_.front();
    unended_.pop_front();
    if (Track* track = find(next.first, next.second)) advance(next.first, next.second, *track);
  }
}

void FileSender::on(const transfer::Refused& refused) {
  note_answer(refused.run, refused.path);
  const auto place = runs_.find(refused.run);
  if (place == runs_.end()) return;
  Run& entry = place->second;
  if (refused.unknown_run) {
    if (!std::exchange(entry.is_unknown, true) && !entry.is_ended)
      handlers_.on_warning(fmt::format("files of run {} stay here: {}", refused.run, refused.reason));
    entry.refusal = refused.reason;
    if (shipment_ && shipment_->run == refused.run) drop_shipment(refused.reason);
    std::erase_if(ready_, [&](const Key& key) { return key.first == refused.run; });
  }
  const std::string of_file = transfer::checkpoint_of(refused.path);
  if (!of_file.empty() || transfer::check_checkpoint(refused.path)) {
    on_checkpoint_refused(entry, of_file.empty() ? refused.path : of_file, refused.reason);
  } else {
    on_file_refused(entry, refused);
  }
  ask_for_offsets();
  choose_checkpoint();
  pump();
  check_end(refused.run);
}

void FileSender::on_file_refused(Run& entry, const transfer::Refused& refused) {
  const auto log = entry.logs.find(refused.path);
  if (log == entry.logs.end() || log->second.state == Track::State::kRefused) return;
  if (log->second.state == Track::State::kAsked) --queries_;
  log->second.state = Track::State::kRefused;
  ++log->second.attempt;
  move(log->second, 0, 0);
  ready_.erase({refused.run, refused.path});
  entry.refusal = refused.reason;
  if (entry.is_unknown || ++entry.refused > kRefusedMax) return;
  handlers_.on_warning(fmt::format("{} of run {} stays here{}: {}", refused.path, refused.run,
                                   entry.refused == kRefusedMax ? ", and so does what is new of it" : "",
                                   refused.reason));
}

void FileSender::on(const transfer::Keep& keep) {
  const auto place = runs_.find(keep.run);
  if (place == runs_.end() || keep.paths.size() > transfer::kPathsMax) return;
  place->second.kept.clear();
  for (const std::string& path : keep.paths)
    if (transfer::check_checkpoint(path)) place->second.kept.push_back(path.substr(path.rfind('/') + 1));
  look(keep.run);
}

}  // namespace sgd::agent

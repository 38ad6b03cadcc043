// The checkpoint that a FileSender has in work.

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "common/checkpoint/manifest.hpp"
#include "launcher/agent/file_sender.hpp"
#include "launcher/process/clock.hpp"

namespace sgd::agent {
namespace {

std::string name_of(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

}  // namespace

void FileSender::choose_checkpoint() {
  if (shipment_ || !can_put()) return;
  const auto newest = [](const std::set<std::string>& names) {
    return *std::max_element(names.begin(), names.end(), [](const std::string& one, const std::string& other) {
      return checkpoint::parse_directory_name(one) < checkpoint::parse_directory_name(other);
    });
  };
  const TimePoint now = process::monotonic_now();
  const auto has_one = [now](const auto& run) {
    return !run.second.waiting.empty() && !run.second.is_unknown && run.second.rests_until <= now;
  };
  auto run = std::find_if(runs_.upper_bound(last_shipped_), runs_.end(), has_one);
  if (run == runs_.end()) run = std::find_if(runs_.begin(), runs_.end(), has_one);
  if (run == runs_.end()) return;
  last_shipped_ = run->first;
  ship(run->first, fmt::format("{}/{}", checkpoint::kDirectory, newest(run->second.waiting)), false);
}

void FileSender::ship(const RunId& run, const std::string& path, bool is_asked_for) {
  shipment_.emplace();
  shipment_->run = run;
  shipment_->path = path;
  shipment_->is_asked_for = is_asked_for;
  list_shipment();
}

/// Also after a lost connection: what is there of each file is asked anew.
void FileSender::list_shipment() {
  shipment_->state = Shipment::State::kListing;
  shipment_->number = next_number_++;
  for (auto& [file, track] : shipment_->files) move(track, 0, 0);
  shipment_->files.clear();
  thread_.ask([files = runs_.at(shipment_->run).files, path = shipment_->path] { return files->listing(path); },
              [this, number = shipment_->number](const Result<std::vector<transfer::ListedFile>>& listed) {
                on_listed(number, listed);
              });
}

void FileSender::on_listed(std::uint64_t number, const Result<std::vector<transfer::ListedFile>>& listed) {
  if (!shipment_ || shipment_->number != number || !link_.is_open()) return;
  const bool is_too_many = listed ? listed.value().size() > kShippedFilesMax : listed.error().code == E2BIG;
  if (is_too_many) return refuse_shipment(fmt::format("it has more than {} files", kShippedFilesMax));
  if (!listed) {
    const RunId run = shipment_->run;
    runs_.at(run).waiting.erase(name_of(shipment_->path));
    drop_shipment(listed.error().message);
    choose_checkpoint();
    return check_end(run);
  }
  shipment_->state = Shipment::State::kPutting;
  for (const transfer::ListedFile& file : listed.value()) {
    Track track;
    track.size = file.bytes;
    track.state = Track::State::kAsked;
    track.attempt = number << 20;  // Reads for a listing before this one do not fit.
    const std::string name = shipment_->path + "/" + file.name;
    shipment_->files.emplace_back(name, track);
    link_.send(transfer::Query{shipment_->run, name});
  }
}

/// It would have no more luck the next time.
void FileSender::refuse_shipment(const std::string& reason) {
  const RunId run = shipment_->run;
  const std::string path = shipment_->path;
  Run& entry = runs_.at(run);
  entry.attempts[name_of(path)] = kAttemptsMax;
  on_checkpoint_refused(entry, path, reason);
  choose_checkpoint();
  check_end(run);
}

bool FileSender::read_checkpoint() {
  if (!shipment_ || shipment_->state != Shipment::State::kPutting) return false;
  for (auto& [file, track] : shipment_->files) {
    if (track.state != Track::State::kKnown || track.next >= track.size) continue;
    read(shipment_->run, file, track);
    return true;
  }
  return false;
}

void FileSender::prove_if_complete() {
  if (!shipment_ || shipment_->state != Shipment::State::kPutting || shipment_->files.empty()) return;
  const bool is_complete = std::all_of(shipment_->files.begin(), shipment_->files.end(), [](const auto& file) {
    return file.second.state == Track::State::kKnown && file.second.acked >= file.second.size;
  });
  if (!is_complete) return;
  for (const auto& [file, track] : shipment_->files)
    if (track.size == 0)
      link_.send(transfer::Put{shipment_->run, file, 0, 0, transfer::checksum(shipment_->run, file, 0, {}), false});
  shipment_->state = Shipment::State::kProving;
  link_.send(transfer::CheckpointDone{shipment_->run, shipment_->path});
}

void FileSender::drop_shipment(const std::string& reason) {
  if (!shipment_) return;
  if (shipment_->is_asked_for) link_.send(transfer::Lacks{shipment_->run, shipment_->path, reason});
  for (auto& [file, track] : shipment_->files) move(track, 0, 0);
  shipment_.reset();
}

void FileSender::on(const transfer::Ship& ship_next) {
  const auto& [run, path] = ship_next;
  if (!runs_.contains(run) || !transfer::check_checkpoint(path))
    return link_.send(transfer::Lacks{run, path, "the run has no files on this node"});
  if (shipment_ && shipment_->run == run && shipment_->path == path) {
    shipment_->is_asked_for = true;
    return;
  }
  drop_shipment("another one is asked for");
  ship(run, path, true);
}

void FileSender::on(const transfer::Stored& stored) {
  const auto place = runs_.find(stored.run);
  if (place == runs_.end() || !transfer::check_checkpoint(stored.path)) return;
  place->second.stored.insert(name_of(stored.path));
  place->second.waiting.erase(name_of(stored.path));
  place->second.rest = Duration::zero();
  if (shipment_ && shipment_->run == stored.run && shipment_->path == stored.path) {
    shipment_->is_asked_for = false;
    drop_shipment("");
    look(stored.run);  // What was spared because it was in work may go.
  }
  choose_checkpoint();
  pump();
  check_end(stored.run);
}

void FileSender::on_checkpoint_refused(Run& entry, const std::string& path, const std::string& reason) {
  const std::string name = name_of(path);
  if (shipment_ && shipment_->path == path && &runs_.at(shipment_->run) == &entry) drop_shipment(reason);
  if (entry.is_unknown) return;
  entry.rest = entry.rest == Duration::zero() ? times_.retry_first : std::min(2 * entry.rest, times_.retry_max);
  entry.rests_until = process::monotonic_now() + entry.rest;
  wake_from_rest();
  if (++entry.attempts[name] < kAttemptsMax)
    return handlers_.on_warning(fmt::format("{} is sent again in {}: {}", path, format_duration(entry.rest), reason));
  if (entry.waiting.erase(name) == 0) return;
  entry.refusal = reason;
  handlers_.on_warning(fmt::format("{} stays on this node: {}", path, reason));
}

/// When the first run that rests may send again.
void FileSender::wake_from_rest() {
  const TimePoint now = process::monotonic_now();
  std::optional<TimePoint> next;
  for (const auto& [run, entry] : runs_)
    if (entry.rests_until > now) next = std::min(next.value_or(entry.rests_until), entry.rests_until);
  if (!next) return;
  rest_timer_.at(*next, [this] {
    choose_checkpoint();
    pump();
    wake_from_rest();
  });
}

}  // namespace sgd::agent

#include "launcher/coordinator/file_service.hpp"

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "common/checkpoint/manifest.hpp"
#include "launcher/net/admission.hpp"
#include "launcher/process/clock.hpp"

namespace sgd::coordinator {

using transfer::kChunkBytesMax;
using transfer::kWindowBytes;

namespace {

// What is refused, as it is counted.
constexpr const char* kBadNode = "file_node";
constexpr const char* kBadName = "file_name";
constexpr const char* kUnknownRun = "file_run";
constexpr const char* kForeignRun = "file_foreign_run";
constexpr const char* kNoRoom = "file_quota";
constexpr const char* kDamaged = "file_damaged";
constexpr const char* kBadCheckpoint = "file_checkpoint";
constexpr const char* kBadMessage = "file_message";
constexpr const char* kTooMuch = "file_window";
constexpr const char* kDisk = "file_disk";
constexpr const char* kMissing = "file_missing";

}  // namespace

/// Files that are to be put again from an offset: what comes beyond it was on its way before the sender knew.
struct FileService::Intake {
  static constexpr std::size_t kFilesMax = 4096;
  std::map<std::string, std::uint64_t> rewound;  ///< By run and file.
};

struct FileService::Peer {
  std::unique_ptr<net::Session> session;
  NodeId node;
  std::optional<transfer::Put> announced;  ///< Its chunk is the next frame.
  std::int64_t bytes_in_work = 0;          ///< Put or asked for, and on a thread.
  std::size_t requests_in_work = 0;        ///< On a thread.
  std::size_t refusals = 0;
  std::shared_ptr<Intake> logs = std::make_shared<Intake>();
  std::shared_ptr<Intake> checkpoints = std::make_shared<Intake>();
};

struct FileService::PutOutcome {
  storage::Held held;
  bool is_late = false;  ///< On its way before a rewind: dropped.
  bool is_damaged = false;
  bool is_synced = false;
};

FileService::FileService(boost::asio::io_context& io, Handlers handlers, storage::Quota quota)
    : io_(io),
      handlers_(std::move(handlers)),
      quota_(quota),
      relay_([this](PeerId id, const RunId& run) { return may_touch(id, run); }),
      timer_(io, [this] { on_wakeup(); }),
      logs_(io),
      checkpoints_(io) {}

FileService::~FileService() = default;

void FileService::stop() {
  timer_.cancel();
  peers_.clear();
}

/// `work` on `thread`, then `done`; a request costs something even when it has no bytes, so they are counted, too.
template <class Work, class Done>
void FileService::ask(PeerId id, storage::FileThread& thread, Work work, Done done) {
  const auto peer = peers_.find(id);
  if (peer == peers_.end()) return;
  if (++peer->second->requests_in_work > kRequestsMax)
    return close(id, kTooMuch, fmt::format("more than {} requests at a time", kRequestsMax));
  thread.ask(std::move(work), [this, id, done = std::move(done)](auto&& value) mutable {
    if (const auto still = peers_.find(id); still != peers_.end()) --still->second->requests_in_work;
    done(std::forward<decltype(value)>(value));
  });
}

storage::FileThread& FileService::thread_of(const std::string& file) {
  return file.starts_with(checkpoint::kDirectory) ? checkpoints_ : logs_;
}

// ---- peers ----

void FileService::take(std::unique_ptr<net::Session> session, const nlohmann::json& first) {
  const auto decoded = transfer::decode_from_node(first.dump());
  const auto* files = decoded ? std::get_if<transfer::Files>(&decoded.value()) : nullptr;
  if (files == nullptr || !transfer::is_part(files->node))
    return count_refusal(*session, kBadNode, "the first message does not name a node");
  const std::string refusal =
      session->is_secure() ? net::refusal_of_node(files->node, session->peer_identity()) : std::string();
  if (!refusal.empty()) return count_refusal(*session, kBadNode, refusal);
  // A node that comes back may be quicker than the end of its connection before.
  for (auto place = peers_.begin(); place != peers_.end();) {
    const auto before = place++;
    if (before->second->node == files->node) on_closed(before->first);
  }
  const PeerId id = next_++;
  Peer& peer = *(peers_[id] = std::make_unique<Peer>());
  peer.node = files->node;
  peer.session = std::move(session);
  peer.session->start(
      {[this, id](Frame frame) { on_frame(id, std::move(frame)); }, [this, id](const std::string&) { on_closed(id); }});
  for (const auto& [run, names] : kept_) {
    if (!may_touch(id, run)) continue;
    transfer::Keep keep{run, {}};
    for (const std::string& name : names) keep.paths.push_back(fmt::format("{}/{}", checkpoint::kDirectory, name));
    send(id, keep);
  }
  RelayActions actions;
  relay_.on_peer(process::monotonic_now(), id, actions);
  carry_out(actions);
}

void FileService::on_closed(PeerId id) {
  if (peers_.erase(id) == 0) return;
  RelayActions actions;
  relay_.on_gone(process::monotonic_now(), id, actions);
  carry_out(actions);
}

void FileService::count_refusal(const net::Session& session, const char* kind, const std::string& reason) {
  ++refused_;
  if (handlers_.on_refused) handlers_.on_refused(session.peer(), kind, reason);
}

void FileService::close(PeerId id, const char* kind, const std::string& reason) {
  const auto peer = peers_.find(id);
  if (peer == peers_.end()) return;
  count_refusal(*peer->second->session, kind, reason);
  peer->second->session->close(reason);
}

void FileService::send(PeerId id, const transfer::ToNode& message, std::string_view chunk) {
  const auto peer = peers_.find(id);
  if (peer == peers_.end()) return;
  Status sent = peer->second->session->send(FrameKind::kJson, transfer::encode(message));
  if (sent && !chunk.empty()) sent = peer->second->session->send(FrameKind::kChunk, chunk);
  if (!sent) close(id, kTooMuch, sent.error().message);
}

void FileService::refuse(PeerId id, const RunId& run, const std::string& path, const char* kind,
                         const std::string& reason) {
  const auto peer = peers_.find(id);
  if (peer == peers_.end()) return;
  count_refusal(*peer->second->session, kind, reason);
  send(id, transfer::Refused{run, path, reason, kind == kUnknownRun});
  if (++peer->second->refusals > kRefusalsMax) return peer->second->session->close("too much was refused");
  const TimePoint now = process::monotonic_now();
  refusals_.count_failure(now, peer->second->node);
  if (!refusals_.allows(now, peer->second->node)) peer->second->session->rest(kRest);
}

bool FileService::may_touch(PeerId id, const RunId& run) const {
  const auto peer = peers_.find(id);
  return peer != peers_.end() && handlers_.may_touch && handlers_.may_touch(run, peer->second->node);
}

FileService::Files FileService::files_of(PeerId id, const RunId& run, const std::string& path, const Status& name) {
  if (!name) {
    refuse(id, run, path, kBadName, name.error().message);
    return nullptr;
  }
  const bool is_of_job = path == transfer::kFilesFolder && handlers_.directory_of_files != nullptr;
  const auto& directory_of = is_of_job ? handlers_.directory_of_files : handlers_.directory_of;
  const std::optional<std::string> folder = transfer::is_part(run) ? directory_of(run) : std::nullopt;
  if (!folder) {
    files_.erase(run);
    refuse(id, run, path, kUnknownRun, "the run is not known here");
    return nullptr;
  }
  if (!may_touch(id, run)) {
    refuse(id, run, path, kForeignRun, "the run has had no rank on this node");
    return nullptr;
  }
  const std::string& key = is_of_job ? *folder : run;
  Opened& opened_before = files_[key];
  opened_before.used = ++uses_;
  Files& files = opened_before.files;
  if (!files) {
    auto opened = storage::RunFiles::open(
        *folder, quota_, handlers_.charge_of && !is_of_job ? handlers_.charge_of(run) : storage::Charge{});
    if (!opened) {
      files_.erase(key);
      refuse(id, run, path, kDisk, opened.error().message);
      return nullptr;
    }
    files = std::move(opened).value();
    close_unused();
  }
  return files;
}

/// Not what a thread has in work, nor a run of which something could not be kept: that is known by its being here.
void FileService::close_unused() {
  if (files_.size() <= kOpenMax) return;
  auto oldest = files_.end();
  for (auto one = files_.begin(); one != files_.end(); ++one) {
    const bool is_idle = one->second.files.use_count() == 1 && !troubles_.contains(one->first);
    if (is_idle && one->second.used != uses_ && (oldest == files_.end() || one->second.used < oldest->second.used))
      oldest = one;
  }
  if (oldest != files_.end()) files_.erase(oldest);
}

std::string FileService::trouble_of(const RunId& run) const {
  const auto trouble = troubles_.find(run);
  return trouble == troubles_.end() ? std::string() : trouble->second.error;
}

void FileService::settle(const RunId& run) {
  files_.erase(run);
  troubles_.erase(run);
  if (!kept_.contains(run) || std::find(settled_.begin(), settled_.end(), run) != settled_.end()) return;
  settled_.push_back(run);
  if (settled_.size() <= kSettledMax) return;
  kept_.erase(settled_.front());
  settled_.pop_front();
}

void FileService::keep(const RunId& run, const std::vector<std::string>& paths) {
  transfer::Keep message{run, {}};
  std::vector<std::string>& names = kept_[run];
  names.clear();
  for (const std::string& path : paths) {
    const std::string name = path.substr(path.rfind('/') + 1);
    if (!checkpoint::parse_directory_name(name) || names.size() == transfer::kPathsMax) continue;
    names.push_back(name);
    message.paths.push_back(fmt::format("{}/{}", checkpoint::kDirectory, name));
  }
  for (const auto& [id, peer] : peers_)
    if (may_touch(id, run)) send(id, message);
}

void FileService::on_frame(PeerId id, Frame frame) {
  const auto place = peers_.find(id);
  if (place == peers_.end()) return;
  Peer& peer = *place->second;
  if (peer.announced) {
    const transfer::Put put = *std::exchange(peer.announced, std::nullopt);
    if (frame.kind != FrameKind::kChunk || static_cast<std::int64_t>(frame.bytes.size()) != put.bytes)
      return close(id, kBadMessage, "the bytes that were announced do not follow");
    return on_put(id, put, std::move(frame.bytes));
  }
  if (frame.kind == FrameKind::kChunk) return close(id, kBadMessage, "bytes that were not announced");
  auto message = transfer::decode_from_node(frame.bytes);
  if (!message) return close(id, kBadMessage, message.error().message);
  if (auto* put = std::get_if<transfer::Put>(&message.value())) {
    const bool is_possible =
        put->bytes >= 0 && put->bytes <= kChunkBytesMax && put->offset >= 0 && put->offset <= INT64_MAX - put->bytes;
    if (!is_possible) return close(id, kBadMessage, "a chunk of an impossible size");
    if (put->bytes == 0) return on_put(id, std::move(*put), {});
    peer.announced = std::move(*put);
  } else if (const auto* query = std::get_if<transfer::Query>(&message.value())) {
    on_query(id, *query);
  } else if (const auto* done = std::get_if<transfer::CheckpointDone>(&message.value())) {
    on_checkpoint_done(id, *done);
  } else if (const auto* get = std::get_if<transfer::Get>(&message.value())) {
    on_get(id, *get);
  } else if (const auto* sent = std::get_if<transfer::AllSent>(&message.value())) {
    on_all_sent(id, *sent);
  } else if (const auto* lacks = std::get_if<transfer::Lacks>(&message.value())) {
    RelayActions actions;
    relay_.on_lacks(process::monotonic_now(), id, {lacks->run, lacks->path}, lacks->reason, actions);
    carry_out(actions);
  }
}

// ---- files that come ----

void FileService::on_put(PeerId id, transfer::Put put, std::string bytes) {
  Peer& peer = *peers_.at(id);
  const Files files = files_of(id, put.run, put.file, transfer::check_file(put.file));
  if (!files) return;
  peer.bytes_in_work += put.bytes;
  if (peer.bytes_in_work > 2 * kWindowBytes) return close(id, kTooMuch, "more bytes than the window takes");
  storage::FileThread& thread = thread_of(put.file);
  auto work = [files, put, bytes = std::move(bytes), intake = &thread == &logs_ ? peer.logs : peer.checkpoints] {
    PutOutcome outcome;
    const std::string key = put.run + "/" + put.file;
    const auto rewound = intake->rewound.find(key);
    const auto offset = static_cast<std::uint64_t>(put.offset);
    outcome.is_late = rewound != intake->rewound.end() && offset > rewound->second;
    if (outcome.is_late) return outcome;
    outcome.is_damaged = transfer::checksum(put.run, put.file, put.offset, bytes) != put.crc32c;
    outcome.held = outcome.is_damaged ? files->held(put.file) : files->append(put.file, offset, bytes);
    if (outcome.is_damaged || outcome.held.is_gap || !outcome.held.error.empty()) {
      if (intake->rewound.size() >= Intake::kFilesMax) intake->rewound.clear();
      intake->rewound[key] = outcome.held.bytes;
    } else {
      intake->rewound.erase(key);
    }
    if (put.last && outcome.held.error.empty() && !outcome.held.is_gap) {
      const Status synced = files->sync(put.file);
      outcome.is_synced = synced.ok();
      if (!synced) outcome.held.error = synced.error().message;
    }
    return outcome;
  };
  ask(id, thread, std::move(work), [this, id, put](const PutOutcome& outcome) { on_put_done(id, put, outcome); });
}

void FileService::on_put_done(PeerId id, const transfer::Put& put, const PutOutcome& outcome) {
  if (const auto peer = peers_.find(id); peer != peers_.end()) peer->second->bytes_in_work -= put.bytes;
  if (outcome.is_late) return;
  const storage::Held& held = outcome.held;
  const std::string checkpoint = transfer::checkpoint_of(put.file);
  if (held.is_stored) return stored(id, {put.run, checkpoint});
  note_trouble(put.run, put.file, held);
  if (held.is_too_much) return refuse(id, put.run, put.file, kNoRoom, held.error);
  transfer::Have have{put.run, put.file, static_cast<std::int64_t>(held.bytes), false, outcome.is_synced, held.error};
  have.rewind = outcome.is_damaged || held.is_gap || !held.error.empty();
  if (have.rewind) {
    const std::string why = outcome.is_damaged ? "a chunk was damaged on its way"
                            : held.is_gap      ? "bytes are missing"
                                               : held.error;
    const auto peer = peers_.find(id);
    if (peer != peers_.end())
      count_refusal(*peer->second->session, held.error.empty() ? kDamaged : kDisk,
                    fmt::format("{}: {}; asked for again from {}", put.file, why, held.bytes));
  }
  send(id, have);
  if (!checkpoint.empty()) {
    relay_.on_bytes(process::monotonic_now(), id, {put.run, checkpoint}, put.bytes);
  } else if (held.added > 0 && handlers_.on_log_grown) {
    handlers_.on_log_grown(put.run, put.file, have.offset);
  }
}

/// Files that come behind the end of a run whose files count as whole change nothing of what was told.
void FileService::note_trouble(const RunId& run, const std::string& file, const storage::Held& held) {
  const auto known = troubles_.find(run);
  if (known != troubles_.end() && known->second.is_refusal && known->second.file != file) return;
  const bool counts = files_.contains(run) && !(handlers_.is_settled && handlers_.is_settled(run));
  if (!held.error.empty() && counts)
    troubles_[run] = {file, held.error, held.is_too_much};
  else if (held.error.empty() && known != troubles_.end())
    troubles_.erase(known);
}

void FileService::on_query(PeerId id, const transfer::Query& query) {
  const Files files = files_of(id, query.run, query.file, transfer::check_file(query.file));
  if (!files) return;
  const auto look = [files, file = query.file] { return files->held(file); };
  ask(id, thread_of(query.file), look, [this, id, query](const storage::Held& held) {
    const std::string checkpoint = transfer::checkpoint_of(query.file);
    if (held.is_stored) return stored(id, {query.run, checkpoint});
    if (!held.error.empty()) return refuse(id, query.run, query.file, kDisk, held.error);
    send(id, transfer::Have{query.run, query.file, static_cast<std::int64_t>(held.bytes), false, false, ""});
  });
}

void FileService::on_checkpoint_done(PeerId id, const transfer::CheckpointDone& done) {
  const Files files = files_of(id, done.run, done.path, transfer::check_checkpoint(done.path));
  if (!files) return;
  const auto finish = [files, path = done.path,
                       kept = kept_.contains(done.run) ? kept_.at(done.run) : std::vector<std::string>()] {
    const bool is_news = !files->is_stored(path);
    const Status finished = files->finish(path);
    if (finished && is_news) files->prune(kept);
    return finished;
  };
  ask(id, checkpoints_, finish, [this, id, done](const Status& finished) {
    const CheckpointId checkpoint{done.run, done.path};
    if (finished) return stored(id, checkpoint);
    refuse(id, done.run, done.path, kBadCheckpoint, finished.error().message);
    RelayActions actions;
    relay_.on_lacks(process::monotonic_now(), id, checkpoint, finished.error().message, actions);
    carry_out(actions);
  });
}

void FileService::on_all_sent(PeerId id, const transfer::AllSent& sent) {
  if (!files_of(id, sent.run, "", {})) return;
  if (handlers_.on_all_sent) handlers_.on_all_sent(sent.run, peers_.at(id)->node);
  send(id, transfer::Taken{sent.run});
}

/// A checkpoint that was refused does not matter any more once another one is whole: newer ones come behind it.
void FileService::stored(PeerId id, const CheckpointId& checkpoint) {
  const auto trouble = troubles_.find(checkpoint.run);
  if (trouble != troubles_.end() && !transfer::checkpoint_of(trouble->second.file).empty()) troubles_.erase(trouble);
  send(id, transfer::Stored{checkpoint.run, checkpoint.path});
  if (handlers_.on_checkpoint_stored) handlers_.on_checkpoint_stored(checkpoint.run, checkpoint.path);
  for (const PeerId waiting : relay_.on_stored(checkpoint)) send_listing(waiting, checkpoint);
  timer_.arm(relay_.next_wakeup());
}

// ---- files that go ----

void FileService::on_get(PeerId id, const transfer::Get& get) {
  if (get.file.empty()) return send_listing(id, {get.run, get.path});
  send_data(id, get);
}

void FileService::send_listing(PeerId id, const CheckpointId& checkpoint) {
  const Files files = files_of(id, checkpoint.run, checkpoint.path, transfer::check_gettable(checkpoint.path));
  if (!files) return;
  const auto list = [files, path = checkpoint.path] { return files->listing(path); };
  ask(id, checkpoints_, list, [this, id, checkpoint](const Result<std::vector<transfer::ListedFile>>& listed) {
    if (listed) return send(id, transfer::Listing{checkpoint.run, checkpoint.path, listed.value()});
    if (listed.error().code == E2BIG)
      return refuse(id, checkpoint.run, checkpoint.path, kMissing, listed.error().message);
    // What a job has brought no node has before the coordinator.
    if (checkpoint.path == transfer::kFilesFolder)
      return refuse(id, checkpoint.run, checkpoint.path, kMissing, "the run's job has brought no files");
    RelayActions actions;
    relay_.on_wanted(process::monotonic_now(), id, checkpoint, actions);
    carry_out(actions);
  });
}

void FileService::send_data(PeerId id, const transfer::Get& get) {
  const std::string file = get.path + "/" + get.file;
  Status name = transfer::check_gettable(get.path);
  if (name && !transfer::is_part(get.file)) name = Error{"no name of a file"};
  const Files files = files_of(id, get.run, get.path, name);
  if (!files) return;
  Peer& peer = *peers_.at(id);
  if (get.offset < 0 || get.bytes <= 0 || get.bytes > kChunkBytesMax)
    return close(id, kBadMessage, "a chunk of an impossible size");
  peer.bytes_in_work += get.bytes;
  if (peer.bytes_in_work > 2 * kWindowBytes) return close(id, kTooMuch, "asks for more bytes than the window takes");
  struct Piece {
    Result<std::string> bytes;
    std::uint32_t crc32c = 0;
  };
  const auto read = [files, get, file] {
    Piece piece{files->read(file, static_cast<std::uint64_t>(get.offset), static_cast<std::size_t>(get.bytes))};
    if (piece.bytes) piece.crc32c = transfer::checksum(get.run, file, get.offset, piece.bytes.value());
    return piece;
  };
  ask(id, checkpoints_, read, [this, id, get](const Piece& piece) {
    if (const auto asking = peers_.find(id); asking != peers_.end()) asking->second->bytes_in_work -= get.bytes;
    if (!piece.bytes) return refuse(id, get.run, get.path, kMissing, piece.bytes.error().message);
    const std::string& bytes = piece.bytes.value();
    send(id,
         transfer::Data{get.run, get.path, get.file, get.offset, static_cast<std::int64_t>(bytes.size()), piece.crc32c},
         bytes);
  });
}

// ---- checkpoints that are elsewhere ----

void FileService::carry_out(const RelayActions& actions) {
  for (const RelayAction& action : actions) {
    const auto& [run, path] = action.checkpoint;
    switch (action.what) {
      case RelayAction::What::kShip:
        send(action.peer, transfer::Ship{run, path});
        break;
      case RelayAction::What::kPending:
        send(action.peer, transfer::Pending{run, path, action.bytes});
        break;
      case RelayAction::What::kRefuse:
        refuse(action.peer, run, path, kMissing, action.reason);
        break;
    }
  }
  timer_.arm(relay_.next_wakeup());
}

void FileService::on_wakeup() {
  RelayActions actions;
  relay_.on_tick(process::monotonic_now(), actions);
  carry_out(actions);
}

}  // namespace sgd::coordinator

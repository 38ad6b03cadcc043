#include "launcher/storage/event_store.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/base/assert.hpp"
#include "launcher/storage/event_codec.hpp"

namespace sgd::storage {
namespace {

std::size_t bytes_of(const StoreWrite& write) {
  return sizeof write + (write.event ? write.event->text.size() : 0) + (write.run ? write.run->summary.size() : 0);
}

/// Lines are written without waiting for the disk, as long as the events that they are made of are stored.
void sync_files(const std::string& run_dir) {
  for (const char* name : {"/events.jsonl", "/metrics.jsonl", "/summary.json", "/nodes.jsonl", ""}) {
    const int fd = ::open((run_dir + name).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    (void)::fsync(fd);  // Ignoring: the folder is the user's; what counts of it is in the row.
    ::close(fd);
  }
}

constexpr int kCompactorNice = 5;

/// Signals are for the main thread.
std::thread start_thread(std::function<void()> work) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(work));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

Result<std::unique_ptr<EventStore>> EventStore::open(const std::string& folder) {
  auto tables = StoreTables::open(folder);
  if (!tables) return tables.error();
  return std::unique_ptr<EventStore>(new EventStore(std::move(tables).value()));
}

EventStore::~EventStore() {
  is_compaction_ending_ = true;
  if (compactor_.joinable()) compactor_.join();
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Status EventStore::load(const std::function<void(TimePoint, core::CoordinatorEvent&&)>& take) {
  const auto cut = tables_->load_cut();
  if (!cut) return cut.error();
  next_event_ = first_event_ = cut.value().event + 1;
  return tables_->load_events([&](const StoredEvent& stored) -> Status {
    auto event = decode_event(stored.text);
    if (!event) return event.error();
    if (next_event_ == first_event_) first_event_ = stored.id;  // A store without a cut may begin anywhere.
    next_event_ = stored.id + 1;
    bytes_ += stored.text.size();
    take(stored.at, std::move(event).value());
    return {};
  });
}

void EventStore::start(Handlers handlers) {
  handlers_ = std::move(handlers);
  thread_ = start_thread([this] { run(); });
}

EventStore::Ticket EventStore::append(TimePoint at, const core::CoordinatorEvent& event, std::optional<StoredRun> run) {
  StoredEvent stored{next_event_++, at, encode_event(event)};
  bytes_ += stored.text.size();
  return add({nullptr, std::move(stored), std::move(run), {}});
}

EventStore::Ticket EventStore::put(StoredRun run) {
  return add({nullptr, std::nullopt, std::move(run), {}});
}

EventStore::Ticket EventStore::drop(const RunId& run) {
  return add({nullptr, std::nullopt, std::nullopt, run});
}

void EventStore::compact(std::uint64_t event, const core::CoordinatorSettings& settings) {
  if (compactor_.joinable()) compactor_.join();  // It has ended: on_cut was called.
  compactor_ = start_thread([this, event, settings] {
    // What others wait for goes first.
    (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kCompactorNice);
    auto cut = storage::compact(tables_->path(), event, settings, is_compaction_ending_);
    if (cut) {
      (void)add({std::make_shared<const StateCut>(std::move(cut).value()), std::nullopt, std::nullopt, {}});
    } else if (!is_compaction_ending_ && handlers_.on_cut) {
      handlers_.on_cut(cut.error());
    }
  });
}

void EventStore::begin_behind(const StateCut& cut) {
  const std::uint64_t all = std::max<std::uint64_t>(events(), 1);
  first_event_ = cut.event + 1;
  bytes_ = bytes_ * events() / all;
}

EventStore::Ticket EventStore::add(StoreWrite write) {
  const std::lock_guard lock(mutex_);
  ++queued_;
  queued_bytes_ += bytes_of(write);
  queue_.push_back(std::move(write));
  changed_.notify_one();
  return ++last_ticket_;
}

bool EventStore::is_full() const {
  const std::lock_guard lock(mutex_);
  return queued_ >= kQueueMax || queued_bytes_ >= kQueueBytesMax;
}

bool EventStore::has_room() const {
  const std::lock_guard lock(mutex_);
  return queued_ <= kQueueMax / 2 && queued_bytes_ <= kQueueBytesMax / 2;
}

void EventStore::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !queue_.empty() || is_ending_ || tables_->has_trash(); });
    if (queue_.empty() && is_ending_) return;
    const std::vector<StoreWrite> batch = std::exchange(queue_, {});
    const Ticket up_to = last_ticket_;
    const bool had_trash = tables_->has_trash();
    lock.unlock();
    const bool is_committed = commit(batch);
    if (is_committed) {
      std::size_t bytes = 0;
      for (const StoreWrite& write : batch) bytes += bytes_of(write);
      lock.lock();
      queued_ -= batch.size();
      queued_bytes_ -= bytes;
      lock.unlock();
      if (handlers_.on_committed && !batch.empty()) handlers_.on_committed(up_to);
      bool has_cut = false;
      for (const StoreWrite& write : batch) {
        has_cut = has_cut || write.cut;
        if (write.cut && handlers_.on_cut) handlers_.on_cut(write.cut);
      }
      if ((had_trash || has_cut) && !tables_->has_trash()) tables_->shrink();
    }
    lock.lock();
    if (!is_committed) return;  // It is ending.
  }
}

/// Until it succeeds; false: the process ends before that.
bool EventStore::commit(const std::vector<StoreWrite>& batch) {
  for (const StoreWrite& write : batch)
    if (write.run && write.run->is_finished()) sync_files(write.run->run_dir);
  std::string said;
  for (Duration delay = kRetryFirst;; delay = std::min(2 * delay, kRetryMax)) {
    const Status status = tables_->write(batch);
    if (status) break;
    if (reserve_.is_there()) {
      reserve_.give_up();
      continue;
    }
    if (status.error().message != said && handlers_.on_trouble) handlers_.on_trouble(status.error().message);
    said = status.error().message;
    if (!wait_to_retry(delay)) return false;
  }
  if (!said.empty() && handlers_.on_recovered) handlers_.on_recovered();
  if (!reserve_.is_there() && bytes_free(tables_->folder()) > 2 * DiskReserve::kBytes) reserve_.make();
  return true;
}

bool EventStore::wait_to_retry(Duration delay) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, delay, [this] { return is_ending_; });
}

}  // namespace sgd::storage

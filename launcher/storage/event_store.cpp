#include "launcher/storage/event_store.hpp"

#include <fcntl.h>
#include <signal.h>
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

}  // namespace

Result<std::unique_ptr<EventStore>> EventStore::open(const std::string& folder) {
  auto tables = StoreTables::open(folder);
  if (!tables) return tables.error();
  return std::unique_ptr<EventStore>(new EventStore(std::move(tables).value()));
}

EventStore::~EventStore() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Status EventStore::load(const std::function<void(TimePoint, core::CoordinatorEvent&&)>& take) {
  return tables_->load_events([&](const StoredEvent& stored) -> Status {
    auto event = decode_event(stored.text);
    if (!event) return event.error();
    next_event_ = stored.id + 1;
    ++events_;
    take(stored.at, std::move(event).value());
    return {};
  });
}

void EventStore::start(Handlers handlers) {
  handlers_ = std::move(handlers);
  // Signals are for the main thread.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

EventStore::Ticket EventStore::append(TimePoint at, const core::CoordinatorEvent& event, std::optional<StoredRun> run) {
  ++events_;
  return add({false, StoredEvent{next_event_++, at, encode_event(event)}, std::move(run)});
}

EventStore::Ticket EventStore::put(StoredRun run) {
  return add({false, std::nullopt, std::move(run)});
}

EventStore::Ticket EventStore::cut(TimePoint at, const core::CoordinatorEvent& first) {
  events_ = 1;
  return add({true, StoredEvent{next_event_++, at, encode_event(first)}, std::nullopt});
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
    changed_.wait(lock, [this] { return !queue_.empty() || is_ending_; });
    if (queue_.empty()) return;
    const std::vector<StoreWrite> batch = std::exchange(queue_, {});
    const Ticket up_to = last_ticket_;
    lock.unlock();
    const bool is_committed = commit(batch);
    if (is_committed) {
      std::size_t bytes = 0;
      for (const StoreWrite& write : batch) bytes += bytes_of(write);
      lock.lock();
      queued_ -= batch.size();
      queued_bytes_ -= bytes;
      lock.unlock();
      if (handlers_.on_committed) handlers_.on_committed(up_to);
      if (std::any_of(batch.begin(), batch.end(), [](const StoreWrite& write) { return write.cuts; }))
        tables_->shrink();
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
    if (status.error().message != said && handlers_.on_trouble) handlers_.on_trouble(status.error().message);
    said = status.error().message;
    if (!wait_to_retry(delay)) return false;
  }
  if (!said.empty() && handlers_.on_recovered) handlers_.on_recovered();
  return true;
}

bool EventStore::wait_to_retry(Duration delay) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, delay, [this] { return is_ending_; });
}

}  // namespace sgd::storage

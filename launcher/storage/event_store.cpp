#include "launcher/storage/event_store.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/base/assert.hpp"
#include "common/base/thread.hpp"
#include "launcher/storage/event_codec.hpp"

namespace sgd::storage {
namespace {

std::size_t bytes_of(const StoreWrite& write) {
  return sizeof write + (write.event ? write.event->text.size() : 0) + (write.run ? write.run->summary.size() : 0);
}

constexpr int kCompactorNice = 5;

}  // namespace

Result<std::unique_ptr<EventStore>> EventStore::open(const std::string& folder) {
  auto tables = StoreTables::open(folder);
  if (!tables) return tables.error();
  return std::unique_ptr<EventStore>(new EventStore(std::move(tables).value()));
}

EventStore::~EventStore() {
  is_compaction_ending_ = true;
  if (compactor_.joinable()) compactor_.join();
  if (!filer_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_filing_ending_ = true;
  }
  filing_changed_.notify_all();
  filer_.join();
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

Status EventStore::start(Handlers handlers) {
  handlers_ = std::move(handlers);
  auto filer = start_thread([this] { file_runs(); });
  if (!filer) return filer.error();
  filer_ = std::move(filer).value();
  auto thread = start_thread([this] { run(); });
  if (!thread) return thread.error();
  thread_ = std::move(thread).value();
  return {};
}

EventStore::Ticket EventStore::append(TimePoint at, const core::CoordinatorEvent& event, std::optional<StoredRun> run) {
  StoredEvent stored{next_event_++, at, encode_event(event)};
  bytes_ += stored.text.size();
  return add({nullptr, std::move(stored), std::move(run), {}});
}

EventStore::Ticket EventStore::put(StoredRun run) {
  SGD_ASSERT(!run.is_finished());  // Its files have not reached the disk.
  return add({nullptr, std::nullopt, std::move(run), {}});
}

void EventStore::file(StoredRun run) {
  const std::lock_guard lock(mutex_);
  const RunId id = run.id;
  const std::uint64_t number = ++last_filing_;
  const auto before = filing_.find(id);
  const std::uint64_t first = before == filing_.end() ? number : before->second.first;
  supersede(id);
  Filing& filing = filing_[id];
  filing = {number, first, {nullptr, std::nullopt, std::move(run), {}, true}};
  ++unfiled_;
  ++queued_;
  queued_bytes_ += bytes_of(filing.write);
  filing_changed_.notify_all();
}

bool EventStore::is_filing() const {
  const std::lock_guard lock(mutex_);
  return unfiled_ > 0;
}

/// Its row would say what is not true any more.
void EventStore::supersede(const RunId& run) {
  const auto found = filing_.find(run);
  if (found == filing_.end()) return;
  --unfiled_;
  --queued_;
  queued_bytes_ -= bytes_of(found->second.write);
  filing_.erase(found);
  filing_changed_.notify_all();
}

void EventStore::file_runs() {
  std::unique_lock lock(mutex_);
  for (;;) {
    filing_changed_.wait(lock, [this] { return !filing_.empty() || is_filing_ending_; });
    if (filing_.empty()) return;
    const std::uint64_t up_to = last_filing_;
    std::vector<std::string> folders;
    for (const auto& [id, filing] : filing_) folders.push_back(filing.write.run->run_dir);
    lock.unlock();
    handlers_.sync(folders);
    lock.lock();
    for (auto filing = filing_.begin(); filing != filing_.end();) {
      if (filing->second.number > up_to) {
        ++filing;
        continue;
      }
      (void)enqueue(std::move(filing->second.write));
      filing = filing_.erase(filing);
    }
    filing_changed_.notify_all();
  }
}

EventStore::Ticket EventStore::drop(const RunId& run) {
  return add({nullptr, std::nullopt, std::nullopt, run});
}

void EventStore::compact(std::uint64_t event, const core::CoordinatorSettings& settings) {
  if (compactor_.joinable()) compactor_.join();  // It has ended: on_cut was called.
  const std::uint64_t filings = newest_filing();
  auto compactor = start_thread([this, event, settings, filings] {
    // What others wait for goes first.
    (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kCompactorNice);
    auto cut = storage::compact(tables_->path(), event, settings, is_compaction_ending_);
    if (cut) {
      wait_filed(filings);
      (void)add({std::make_shared<const StateCut>(std::move(cut).value()), std::nullopt, std::nullopt, {}});
    } else if (!is_compaction_ending_ && handlers_.on_cut) {
      handlers_.on_cut(cut.error());
    }
  });
  if (compactor)
    compactor_ = std::move(compactor).value();
  else if (handlers_.on_cut)
    handlers_.on_cut(compactor.error());
}

std::uint64_t EventStore::newest_filing() const {
  const std::lock_guard lock(mutex_);
  return last_filing_;
}

/// Their events can be asked for again until their rows are there.
void EventStore::wait_filed(std::uint64_t up_to) {
  std::unique_lock lock(mutex_);
  filing_changed_.wait(lock, [this, up_to] {
    return std::none_of(filing_.begin(), filing_.end(),
                        [up_to](const auto& filing) { return filing.second.first <= up_to; });
  });
}

void EventStore::begin_behind(const StateCut& cut) {
  const std::uint64_t all = std::max<std::uint64_t>(events(), 1);
  first_event_ = cut.event + 1;
  bytes_ = bytes_ * events() / all;
}

EventStore::Ticket EventStore::add(StoreWrite write) {
  const std::lock_guard lock(mutex_);
  supersede(write.run ? write.run->id : write.gone_run);
  if (write.cut) {  // Rows that come behind it say where the lines begin that are made after it.
    for (const auto& [run, lines] : write.cut->lines) {
      const auto filing = filing_.find(run);
      if (filing == filing_.end()) continue;
      filing->second.write.run->lines_before.events += lines.events;
      filing->second.write.run->lines_before.metrics += lines.metrics;
    }
  }
  ++queued_;
  queued_bytes_ += bytes_of(write);
  return enqueue(std::move(write));
}

/// What is counted already.
EventStore::Ticket EventStore::enqueue(StoreWrite write) {
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
      std::size_t filed = 0;
      for (const StoreWrite& write : batch) {
        bytes += bytes_of(write);
        filed += write.is_filed ? 1 : 0;
      }
      lock.lock();
      unfiled_ -= filed;
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
      file_bytes_ = tables_->file_bytes();
    }
    lock.lock();
    if (!is_committed) return;  // It is ending.
  }
}

/// Until it succeeds; false: the process ends before that.
bool EventStore::commit(const std::vector<StoreWrite>& batch) {
  std::string said;
  const bool was_behind = tables_->is_behind();
  for (Duration delay = kRetryFirst;; delay = std::min(2 * delay, kRetryMax)) {
    const TimePoint begin = std::chrono::steady_clock::now();
    const Status status = tables_->write(batch);
    if (status) {
      if (handlers_.on_timed) handlers_.on_timed(std::chrono::steady_clock::now() - begin);
      break;
    }
    if (reserve_.is_there()) {
      reserve_.give_up();
      continue;
    }
    if (status.error().message != said && handlers_.on_trouble) handlers_.on_trouble(status.error().message);
    said = status.error().message;
    if (!wait_to_retry(delay)) return false;
  }
  if ((was_behind || !said.empty()) && handlers_.on_recovered) handlers_.on_recovered();
  if (!reserve_.is_there() && bytes_free(tables_->folder()) > 2 * DiskReserve::kBytes) reserve_.make();
  return true;
}

bool EventStore::wait_to_retry(Duration delay) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, delay, [this] { return is_ending_; });
}

}  // namespace sgd::storage

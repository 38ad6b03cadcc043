#pragma once
// What outlives the coordinator's process: the events of its machine, in order, and a row for each run. A thread of its
// own commits; what is appended while one commit is on its way goes into the next one together, so that the price of an
// fsync is shared and the loop never waits for the disk.
//
//   loop: append() ──> queue ──> thread: one transaction ──> on_committed(ticket) ──posted──> loop: the commands behind
//   it
//                                  └── fails: said, tried again later and later, nothing is acknowledged meanwhile
//         file() ──> thread of its own: the files of all runs that have ended meanwhile, to the disk ──> queue: their
//         rows
//
// Nothing waits for the row of an ended run but a cut of the log, so that no event waits for the files of a run.
//
// The queue has a limit, and append() never refuses: the machine has taken the event already. Who appends asks
// is_full() and takes nothing new from outside while it is; what comes in spite of that is bounded by the number of
// nodes and runs.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "launcher/core/coordinator_io.hpp"
#include "launcher/storage/disk_reserve.hpp"
#include "launcher/storage/store_tables.hpp"
#include "launcher/storage/sync_run_files.hpp"

namespace sgd::storage {

class EventStore {
 public:
  /// Counts what was appended by this process, from 1.
  using Ticket = std::uint64_t;
  static constexpr std::size_t kQueueMax = 16384;
  static constexpr std::size_t kQueueBytesMax = 64 << 20;
  static constexpr Duration kRetryFirst = std::chrono::milliseconds(100);
  static constexpr Duration kRetryMax = std::chrono::seconds(5);

  /// Called by the store's threads; on_cut by compact(), too.
  struct Handlers {
    std::function<void(Ticket up_to)> on_committed;
    /// Once for each different error; it is tried again until it succeeds.
    std::function<void(std::string message)> on_trouble;
    /// After that, and after an error that tables() gave before start().
    std::function<void()> on_recovered;
    /// The answer to compact(): the log begins behind `cut->event`, or what kept it from that.
    std::function<void(Result<std::shared_ptr<const StateCut>> cut)> on_cut;
    std::function<void(const std::vector<std::string>& run_dirs)> sync = sync_run_files;
    /// Before on_committed: how long the transaction took. May be absent.
    std::function<void(Duration took)> on_timed = {};
  };

  /// As StoreTables::open().
  [[nodiscard]] static Result<std::unique_ptr<EventStore>> open(const std::string& folder);
  /// Tries once to commit what waits.
  ~EventStore();
  EventStore(const EventStore&) = delete;
  EventStore& operator=(const EventStore&) = delete;

  // Before start(), in this order:
  /// As it was at the last cut.
  [[nodiscard]] Result<core::CoordinatorState> load_state() const { return tables_->load_state(); }
  [[nodiscard]] Status load(const std::function<void(TimePoint at, core::CoordinatorEvent&& event)>& take);
  [[nodiscard]] Result<std::vector<StoredRun>> load_runs() const { return tables_->load_runs(); }
  [[nodiscard]] StoreTables& tables() { return *tables_; }
  /// After load(). Error: there is no room for its threads.
  [[nodiscard]] Status start(Handlers handlers);

  /// `run`: its row, written with the event or not at all.
  Ticket append(TimePoint at, const core::CoordinatorEvent& event, std::optional<StoredRun> run = std::nullopt);
  /// Of one that has not finished.
  Ticket put(StoredRun run);
  /// Of one that has: its files reach the disk before its row does. What is said of it later counts in its place.
  void file(StoredRun run);
  /// Some of them are not committed.
  [[nodiscard]] bool is_filing() const;
  /// Its row goes.
  Ticket drop(const RunId& run);
  /// The events up to `event` become the state that they lead to, on a thread of its own (compaction.hpp); what follows
  /// from them has been carried out. One at a time: the next one after on_cut.
  void compact(std::uint64_t event, const core::CoordinatorSettings& settings);
  /// On on_cut, before anything else is asked.
  void begin_behind(const StateCut& cut);

  [[nodiscard]] bool is_full() const;
  /// At most half of the queue's limit waits.
  [[nodiscard]] bool has_room() const;
  /// That a load() would give.
  [[nodiscard]] std::uint64_t events() const { return next_event_ - first_event_; }
  /// Their text, about.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] std::uint64_t last_event() const { return next_event_ - 1; }
  /// Of the database and its log on the disk, after the last commit.
  [[nodiscard]] std::int64_t file_bytes() const { return file_bytes_; }

 private:
  explicit EventStore(std::unique_ptr<StoreTables> tables)
      : tables_(std::move(tables)), reserve_(tables_->folder()), file_bytes_(tables_->file_bytes()) {}
  /// What waits for its files.
  struct Filing {
    std::uint64_t number = 0;
    std::uint64_t first = 0;  ///< Of the first one in whose place it is.
    StoreWrite write;
  };

  Ticket add(StoreWrite write);
  Ticket enqueue(StoreWrite write);
  void supersede(const RunId& run);
  void run();
  void file_runs();
  [[nodiscard]] std::uint64_t newest_filing() const;
  void wait_filed(std::uint64_t up_to);
  [[nodiscard]] bool commit(const std::vector<StoreWrite>& batch);
  [[nodiscard]] bool wait_to_retry(Duration delay);

  std::unique_ptr<StoreTables> tables_;
  DiskReserve reserve_;  ///< There while the thread is, and the disk is not full.
  std::atomic<std::int64_t> file_bytes_;
  Handlers handlers_;
  std::uint64_t next_event_ = 1;
  std::uint64_t first_event_ = 1;  ///< Behind the cut.
  std::uint64_t bytes_ = 0;
  std::atomic<bool> is_compaction_ending_ = false;
  std::thread compactor_;

  mutable std::mutex mutex_;  ///< Of what follows.
  std::condition_variable changed_;
  std::vector<StoreWrite> queue_;
  std::map<RunId, Filing> filing_;
  std::condition_variable filing_changed_;
  std::uint64_t last_filing_ = 0;
  std::size_t unfiled_ = 0;  ///< Of file(), and not committed.
  bool is_filing_ending_ = false;
  std::size_t queued_ = 0;  ///< With those that are being filed or committed.
  std::size_t queued_bytes_ = 0;
  Ticket last_ticket_ = 0;
  bool is_ending_ = false;
  std::thread filer_;
  std::thread thread_;
};

}  // namespace sgd::storage

#pragma once
// The tables of the coordinator's state, coordinator.db in its state folder:
//   meta(key, value)          schema's companions: cluster_id, and the clock of the machine's boot
//   states(kind, id, state)   the machine as it was at the event of the last cut, a row for each node and run
//   cut(event, at)            that event; those up to it that are still there count for nothing
//   events(id, at, event)     all that was stored since; ids without a gap, so that a lost one is noticed
//   runs(id, name, ...)       every run, for people; where its lines begin that the events since the cut have made
// WAL with synchronous=FULL: a committed change outlives a power failure. Used by one thread at a time.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/base/time.hpp"
#include "launcher/core/coordinator_state.hpp"
#include "launcher/storage/compaction.hpp"
#include "launcher/storage/database.hpp"
#include "launcher/storage/state_lock.hpp"
#include "launcher/storage/store_reader.hpp"
#include "launcher/storage/stored_run.hpp"

namespace sgd::storage {

/// Carried out whole or not at all.
struct StoreWrite {
  std::shared_ptr<const StateCut> cut;
  std::optional<StoredEvent> event;
  std::optional<StoredRun> run;  ///< New, or in place of its row.
  RunId gone_run;                ///< Whose row goes; empty: none.
  bool is_filed = false;         ///< Of a run that has ended, and whose files are on the disk.
};

class StoreTables {
 public:
  static constexpr int kSchemaVersion = 2;
  /// Events that a cut has left behind and one transaction takes away: more would make those who wait for it wait.
  static constexpr int kDropMax = 2000;

  /// Makes what is missing. Errors say what to do: in use, damaged, of a newer version, no store at all.
  [[nodiscard]] static Result<std::unique_ptr<StoreTables>> open(const std::string& folder);

  /// Random, made with the store: 32 hex digits.
  [[nodiscard]] const std::string& cluster_id() const { return cluster_id_; }
  /// What makes core time of this machine's clock, if it was stored since the machine was started.
  [[nodiscard]] Result<std::optional<Duration>> clock_offset() const;
  [[nodiscard]] Status set_clock_offset(Duration offset);
  /// After an error the next write() brings it.
  [[nodiscard]] Status keep_clock_offset(Duration offset);
  /// An error of keep_clock_offset() stands.
  [[nodiscard]] bool is_behind() const { return late_offset_.has_value(); }
  [[nodiscard]] Result<CutMark> load_cut() const;
  /// As it was at the cut.
  [[nodiscard]] Result<core::CoordinatorState> load_state() const;
  /// Since the cut, in their order; an error of `take` ends it.
  [[nodiscard]] Status load_events(const std::function<Status(StoredEvent)>& take) const;
  [[nodiscard]] Result<std::vector<StoredRun>> load_runs() const;
  /// In one transaction, with some of what cuts have left.
  [[nodiscard]] Status write(const std::vector<StoreWrite>& writes);
  /// There is more of it.
  [[nodiscard]] bool has_trash() const { return has_trash_; }
  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] std::string path() const { return folder_ + "/coordinator.db"; }
  /// Of the database and its log on the disk.
  [[nodiscard]] std::int64_t file_bytes() const;
  /// Gives the room of what was cut off back to the file system.
  void shrink();

 private:
  StoreTables(StateLock lock, std::unique_ptr<Database> database, std::string folder)
      : lock_(std::move(lock)), folder_(std::move(folder)), database_(std::move(database)) {}
  [[nodiscard]] Status check();
  [[nodiscard]] Status open_alone();
  [[nodiscard]] Status create();
  [[nodiscard]] Status prepare();
  [[nodiscard]] Status write_one(const StoreWrite& write);
  [[nodiscard]] Status put(const StoredRun& run);
  [[nodiscard]] Status apply(const StateCut& cut);
  [[nodiscard]] Status drop_some();
  [[nodiscard]] Result<std::string> meta(const std::string& key) const;
  [[nodiscard]] Status set_meta(const std::string& key, const std::string& value);
  [[nodiscard]] Error explain(const Error& error) const;

  StateLock lock_;  ///< First: held until the database is closed.
  std::string folder_;
  std::unique_ptr<Database> database_;
  std::string cluster_id_;
  std::optional<Statement> add_event_;
  std::optional<Statement> put_run_;
  std::optional<Duration> late_offset_;  ///< Of the clock: not stored yet.
  bool has_trash_ = true;                ///< The life before may have left some.
};

}  // namespace sgd::storage

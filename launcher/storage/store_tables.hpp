#pragma once
// The tables of the coordinator's state, coordinator.db in its state folder:
//   meta(key, value)          schema's companions: cluster_id, and the clock of the machine's boot
//   events(id, at, event)     all that was stored since the last cut; ids without a gap, so that a lost one is noticed
//   runs(id, name, ...)       every run; what stays of it when its events are cut off
// WAL with synchronous=FULL: a committed change outlives a power failure. Used by one thread at a time.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/base/time.hpp"
#include "launcher/storage/database.hpp"
#include "launcher/storage/state_lock.hpp"
#include "launcher/storage/stored_run.hpp"

namespace sgd::storage {

struct StoredEvent {
  std::uint64_t id = 0;
  TimePoint at;
  std::string text;  ///< As encode_event() makes it.
};

/// Carried out whole or not at all.
struct StoreWrite {
  bool cuts = false;  ///< All events so far go, and of the finished runs the oldest.
  std::optional<StoredEvent> event;
  std::optional<StoredRun> run;  ///< New, or in place of its row.
};

class StoreTables {
 public:
  static constexpr int kSchemaVersion = 1;
  static constexpr int kFinishedRunsMax = 2000;

  /// Makes what is missing. Errors say what to do: in use, damaged, of a newer version, no store at all.
  [[nodiscard]] static Result<std::unique_ptr<StoreTables>> open(const std::string& folder);

  /// Random, made with the store: 32 hex digits.
  [[nodiscard]] const std::string& cluster_id() const { return cluster_id_; }
  /// What makes core time of this machine's clock, if it was stored since the machine was started.
  [[nodiscard]] Result<std::optional<Duration>> clock_offset() const;
  [[nodiscard]] Status set_clock_offset(Duration offset);
  /// In their order; an error of `take` ends it.
  [[nodiscard]] Status load_events(const std::function<Status(StoredEvent)>& take) const;
  [[nodiscard]] Result<std::vector<StoredRun>> load_runs() const;
  /// In one transaction.
  [[nodiscard]] Status write(const std::vector<StoreWrite>& writes);
  /// Gives the room of what was cut off back to the file system.
  void shrink();

 private:
  StoreTables(StateLock lock, std::unique_ptr<Database> database, std::string folder)
      : lock_(std::move(lock)), folder_(std::move(folder)), database_(std::move(database)) {}
  [[nodiscard]] Status check();
  [[nodiscard]] Status create();
  [[nodiscard]] Status prepare();
  [[nodiscard]] Status write_one(const StoreWrite& write);
  [[nodiscard]] Status put(const StoredRun& run);
  [[nodiscard]] Result<std::string> meta(const std::string& key) const;
  [[nodiscard]] Status set_meta(const std::string& key, const std::string& value);
  [[nodiscard]] Error explain(const Error& error) const;

  StateLock lock_;  ///< First: held until the database is closed.
  std::string folder_;
  std::unique_ptr<Database> database_;
  std::string cluster_id_;
  std::optional<Statement> add_event_;
  std::optional<Statement> put_run_;
};

}  // namespace sgd::storage

#include "launcher/storage/store_tables.hpp"

#include <sys/random.h>

#include <charconv>
#include <fstream>

#include <fmt/format.h>

#include "common/base/assert.hpp"

namespace sgd::storage {
namespace {

constexpr std::int64_t kApplicationId = 0x73676463;  // "sgdc"

constexpr const char* kSchema = R"(
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE events(id INTEGER PRIMARY KEY, at INTEGER NOT NULL, event TEXT NOT NULL);
CREATE TABLE runs(id TEXT PRIMARY KEY, name TEXT NOT NULL, owner TEXT NOT NULL, request TEXT NOT NULL,
                  run_dir TEXT NOT NULL, num_workers INTEGER NOT NULL, state TEXT NOT NULL, exit_code INTEGER NOT NULL,
                  submitted REAL NOT NULL, finished REAL NOT NULL, wall REAL NOT NULL,
                  events_before INTEGER NOT NULL, metrics_before INTEGER NOT NULL, summary TEXT NOT NULL);
)";

std::string random_id() {
  unsigned char bytes[16];
  SGD_ASSERT(::getrandom(bytes, sizeof bytes, 0) == static_cast<ssize_t>(sizeof bytes));
  std::string id;
  for (const unsigned char byte : bytes) id += fmt::format("{:02x}", byte);
  return id;
}

/// Changes with each start of the machine, and with it the meaning of its monotonic clock.
std::string boot_id() {
  std::string id;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::getline(file, id);
  return id;
}

}  // namespace

Result<std::unique_ptr<StoreTables>> StoreTables::open(const std::string& folder) {
  auto lock = StateLock::take(folder);
  if (!lock) return lock.error();
  auto database = Database::open(folder + "/coordinator.db");
  if (!database) return database.error();
  std::unique_ptr<StoreTables> tables(new StoreTables(std::move(lock).value(), std::move(database).value(), folder));
  Status status = tables->check();
  if (status) status = tables->prepare();
  if (!status) return tables->explain(status.error());
  return tables;
}

/// A new file gets its tables; one of somebody else, of another version or with damage is refused.
Status StoreTables::check() {
  const auto tables = database_->ask("SELECT count(*) FROM sqlite_master");
  if (!tables) return tables.error();
  if (tables.value() == "0") return create();
  const auto application = database_->ask("PRAGMA application_id");
  const auto version = database_->ask("PRAGMA user_version");
  if (!application) return application.error();
  if (!version) return version.error();
  const std::string path = folder_ + "/coordinator.db";
  if (application.value() != std::to_string(kApplicationId))
    return Error{path + " is no store of sgd-launch: name another state folder"};
  if (version.value() != std::to_string(kSchemaVersion))
    return Error{fmt::format("{} has schema version {}, and this sgd-launch knows {}: run the one that wrote it", path,
                             version.value(), kSchemaVersion)};
  const auto checked = database_->ask("PRAGMA quick_check(1)");
  if (!checked) return checked.error();
  if (checked.value() != "ok") return Error{fmt::format("{} is damaged: {}", path, checked.value())};
  return {};
}

/// Everything or nothing: a kill in between leaves an empty file, which is a new one.
Status StoreTables::create() {
  return database_->execute(
      fmt::format("PRAGMA auto_vacuum=INCREMENTAL; BEGIN; {} INSERT INTO meta VALUES('cluster_id', '{}'); PRAGMA "
                  "application_id={}; "
                  "PRAGMA user_version={}; COMMIT;",
                  kSchema, random_id(), kApplicationId, kSchemaVersion));
}

Status StoreTables::prepare() {
  const auto mode = database_->ask("PRAGMA journal_mode=WAL");
  if (!mode) return mode.error();
  if (mode.value() != "wal")
    return Error{fmt::format("{} cannot hold a write-ahead log: put the state folder on a local disk", folder_)};
  Status status = database_->execute("PRAGMA synchronous=FULL");
  if (!status) return status;
  auto id = meta("cluster_id");
  if (!id) return id.error();
  cluster_id_ = std::move(id).value();
  auto add_event = database_->prepare("INSERT OR REPLACE INTO events(id, at, event) VALUES(?, ?, ?)");
  if (!add_event) return add_event.error();
  add_event_.emplace(std::move(add_event).value());
  auto put_run = database_->prepare(
      "INSERT OR REPLACE INTO runs(id, name, owner, request, run_dir, num_workers, state, exit_code, submitted, "
      "finished, "
      "wall, events_before, metrics_before, summary) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
  if (!put_run) return put_run.error();
  put_run_.emplace(std::move(put_run).value());
  return {};
}

Result<std::string> StoreTables::meta(const std::string& key) const {
  return database_->ask(fmt::format("SELECT value FROM meta WHERE key='{}'", key));
}

Status StoreTables::set_meta(const std::string& key, const std::string& value) {
  auto statement = database_->prepare("INSERT OR REPLACE INTO meta(key, value) VALUES(?, ?)");
  if (!statement) return statement.error();
  return statement.value().bind(1, key).bind(2, value).run();
}

Result<std::optional<Duration>> StoreTables::clock_offset() const {
  const auto boot = meta("boot_id");
  const auto offset = meta("clock_offset_ns");
  if (!boot) return explain(boot.error());
  if (!offset) return explain(offset.error());
  const std::string& text = offset.value();
  std::int64_t ns = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), ns);
  if (boot.value().empty() || boot.value() != boot_id() || parsed.ec != std::errc()) return std::optional<Duration>();
  return std::optional<Duration>(Duration(ns));
}

Status StoreTables::set_clock_offset(Duration offset) {
  const Status status = set_meta("clock_offset_ns", std::to_string(offset.count()));
  return status ? set_meta("boot_id", boot_id()) : status;
}

Status StoreTables::load_events(const std::function<Status(StoredEvent)>& take) const {
  auto rows = database_->prepare("SELECT id, at, event FROM events ORDER BY id");
  if (!rows) return explain(rows.error());
  std::uint64_t last = 0;
  for (;;) {
    const Result<bool> row = rows.value().step();
    if (!row) return explain(row.error());
    if (!row.value()) return {};
    StoredEvent event;
    event.id = static_cast<std::uint64_t>(rows.value().integer(0));
    if (last != 0 && event.id != last + 1)
      return explain(
          Error{fmt::format("{}/coordinator.db is damaged: after event {} comes event {}", folder_, last, event.id)});
    last = event.id;
    event.at = TimePoint(Duration(rows.value().integer(1)));
    event.text = rows.value().text(2);
    if (Status taken = take(std::move(event)); !taken)
      return Error{fmt::format("{}/coordinator.db, event {}: {}", folder_, last, taken.error().message)};
  }
}

Result<std::vector<StoredRun>> StoreTables::load_runs() const {
  auto rows = database_->prepare(
      "SELECT id, name, owner, request, run_dir, num_workers, state, exit_code, submitted, finished, wall, "
      "events_before, metrics_before, summary FROM runs ORDER BY submitted, id");
  if (!rows) return explain(rows.error());
  std::vector<StoredRun> runs;
  for (Statement& row = rows.value();;) {
    const Result<bool> next = row.step();
    if (!next) return explain(next.error());
    if (!next.value()) return runs;
    runs.push_back({row.text(0),
                    row.text(1),
                    row.text(2),
                    row.text(3),
                    row.text(4),
                    static_cast<int>(row.integer(5)),
                    row.text(6),
                    static_cast<int>(row.integer(7)),
                    row.real(8),
                    row.real(9),
                    row.real(10),
                    {row.integer(11), row.integer(12)},
                    row.text(13)});
  }
}

Status StoreTables::write(const std::vector<StoreWrite>& writes) {
  Status status = database_->execute("BEGIN IMMEDIATE");
  for (const StoreWrite& one : writes)
    if (status) status = write_one(one);
  if (status) status = database_->execute("COMMIT");
  if (status) return status;
  const Error error = explain(status.error());
  database_->roll_back();
  return error;
}

Status StoreTables::write_one(const StoreWrite& write) {
  if (write.cuts) {
    const Status cut =
        database_->execute(fmt::format("DELETE FROM events; DELETE FROM runs WHERE finished > 0 AND id NOT IN "
                                       "(SELECT id FROM runs WHERE finished > 0 ORDER BY finished DESC LIMIT {})",
                                       kFinishedRunsMax));
    if (!cut) return cut;
  }
  if (write.event) {
    const StoredEvent& event = *write.event;
    const Status added = add_event_->bind(1, static_cast<std::int64_t>(event.id))
                             .bind(2, std::int64_t{event.at.time_since_epoch().count()})
                             .bind(3, event.text)
                             .run();
    if (!added) return added;
  }
  return write.run ? put(*write.run) : Status{};
}

Status StoreTables::put(const StoredRun& run) {
  return put_run_->bind(1, run.id)
      .bind(2, run.name)
      .bind(3, run.owner)
      .bind(4, run.request_id)
      .bind(5, run.run_dir)
      .bind(6, std::int64_t{run.num_workers})
      .bind(7, run.state)
      .bind(8, std::int64_t{run.exit_code})
      .bind(9, run.submitted_s)
      .bind(10, run.finished_s)
      .bind(11, run.wall_s)
      .bind(12, run.lines_before.events)
      .bind(13, run.lines_before.metrics)
      .bind(14, run.summary)
      .run();
}

void StoreTables::shrink() {
  // Ignoring: what stays is used again.
  (void)database_->execute("PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE)");
}

/// Damage is said with the way out of it.
Error StoreTables::explain(const Error& error) const {
  const bool is_said = error.message.find("is damaged") != std::string::npos;
  if (!is_said && !database_->is_damaged()) return error;
  return Error{
      fmt::format("{}{}. Move coordinator.db, -wal and -shm out of {} and start again: runs that were live are then "
                  "unknown here, and sgd-launch resume goes on with each of them; or put a copy there",
                  is_said ? "" : "damaged store: ", error.message, folder_),
      error.code};
}

}  // namespace sgd::storage

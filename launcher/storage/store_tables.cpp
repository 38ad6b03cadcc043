#include "launcher/storage/store_tables.hpp"

#include <sys/random.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <limits>

#include <fmt/format.h>

#include "common/base/assert.hpp"
#include "launcher/storage/disk_reserve.hpp"

namespace sgd::storage {
namespace {

constexpr std::int64_t kApplicationId = 0x73676463;    // "sgdc"
constexpr std::uint64_t kSharedIndexBytes = 64 << 10;  ///< What SQLite's index of a write-ahead log takes at first.

constexpr const char* kStateTables =
    "CREATE TABLE states(kind TEXT NOT NULL, id TEXT NOT NULL, state TEXT NOT NULL, PRIMARY KEY(kind, id)); "
    "CREATE TABLE cut(one INTEGER PRIMARY KEY, event INTEGER NOT NULL, at INTEGER NOT NULL);";
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
  DiskReserve(folder).give_up();  // A disk that is full is no reason not to start.
  auto database = Database::open(folder + "/coordinator.db");
  if (!database) return database.error();
  std::unique_ptr<StoreTables> tables(new StoreTables(std::move(lock).value(), std::move(database).value(), folder));
  Status status = tables->check();
  if (status) status = tables->prepare();
  if (!status && bytes_free(folder) < kSharedIndexBytes) status = tables->open_alone();
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
  if (version.value() == "1")  // All of it is in its events.
    return database_->execute(fmt::format("BEGIN; {} PRAGMA user_version={}; COMMIT;", kStateTables, kSchemaVersion));
  if (version.value() != std::to_string(kSchemaVersion))
    return Error{fmt::format("{} has schema version {}, and this sgd-launch knows {}: run the one that wrote it", path,
                             version.value(), kSchemaVersion)};
  const auto checked = database_->ask("PRAGMA quick_check(1)");
  if (!checked) return checked.error();
  if (checked.value() != "ok") return Error{fmt::format("{} is damaged: {}", path, checked.value())};
  return {};
}

/// Without the file by which connections know of each other's pages: it takes room, and the disk has none. The log is
/// not cut until the next start, since that is done by a connection of its own.
Status StoreTables::open_alone() {
  add_event_.reset();
  put_run_.reset();
  auto database = Database::open(folder_ + "/coordinator.db");
  if (!database) return database.error();
  database_ = std::move(database).value();
  Status status = database_->execute("PRAGMA locking_mode=EXCLUSIVE");
  if (status) status = check();
  if (status) status = prepare();
  return status;
}

/// Everything or nothing: a kill in between leaves an empty file, which is a new one.
Status StoreTables::create() {
  return database_->execute(
      fmt::format("PRAGMA auto_vacuum=INCREMENTAL; BEGIN; {} {} INSERT INTO meta VALUES('cluster_id', '{}'); PRAGMA "
                  "application_id={}; "
                  "PRAGMA user_version={}; COMMIT;",
                  kSchema, kStateTables, random_id(), kApplicationId, kSchemaVersion));
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

Result<CutMark> StoreTables::load_cut() const {
  auto cut = read_cut(*database_);
  if (!cut) return explain(cut.error());
  return cut;
}

Result<core::CoordinatorState> StoreTables::load_state() const {
  const auto rows = read_states(*database_);
  if (!rows) return explain(rows.error());
  auto state = decode_state(rows.value());
  if (!state) return Error{fmt::format("{}/coordinator.db: {}", folder_, state.error().message)};
  return state;
}

Status StoreTables::load_events(const std::function<Status(StoredEvent)>& take) const {
  const auto cut = read_cut(*database_);
  if (!cut) return explain(cut.error());
  const Status read = read_events(*database_, cut.value(), std::numeric_limits<std::uint64_t>::max(), take);
  if (read) return read;
  const std::string& said = read.error().message;
  return explain(said.starts_with("coordinator.db") ? Error{folder_ + "/" + said} : read.error());
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

Status StoreTables::keep_clock_offset(Duration offset) {
  const Status kept = set_clock_offset(offset);
  if (!kept) late_offset_ = offset;
  return kept;
}

Status StoreTables::write(const std::vector<StoreWrite>& writes) {
  Status status = database_->execute("BEGIN IMMEDIATE");
  if (status && late_offset_) status = set_clock_offset(*late_offset_);
  for (const StoreWrite& one : writes)
    if (status) status = write_one(one);
  if (status && has_trash_) status = drop_some();
  if (status) status = database_->execute("COMMIT");
  if (status) {
    late_offset_.reset();
    return status;
  }
  const Error error = explain(status.error());
  database_->roll_back();
  return error;
}

Status StoreTables::write_one(const StoreWrite& write) {
  if (write.cut)
    if (Status cut = apply(*write.cut); !cut) return cut;
  if (write.event) {
    const StoredEvent& event = *write.event;
    const Status added = add_event_->bind(1, static_cast<std::int64_t>(event.id))
                             .bind(2, std::int64_t{event.at.time_since_epoch().count()})
                             .bind(3, event.text)
                             .run();
    if (!added) return added;
  }
  if (!write.gone_run.empty()) {
    auto drop = database_->prepare("DELETE FROM runs WHERE id=?");
    if (!drop) return drop.error();
    if (Status dropped = drop.value().bind(1, write.gone_run).run(); !dropped) return dropped;
  }
  return write.run ? put(*write.run) : Status{};
}

Status StoreTables::apply(const StateCut& cut) {
  auto put = database_->prepare("INSERT OR REPLACE INTO states(kind, id, state) VALUES(?, ?, ?)");
  auto drop = database_->prepare("DELETE FROM states WHERE kind=? AND id=?");
  auto count =
      database_->prepare("UPDATE runs SET events_before=events_before+?, metrics_before=metrics_before+? WHERE id=?");
  if (!put) return put.error();
  if (!drop) return drop.error();
  if (!count) return count.error();
  Status status;
  for (const StateRow& row : cut.changed)
    if (status) status = put.value().bind(1, row.kind).bind(2, row.id).bind(3, row.text).run();
  for (const StateRow& row : cut.gone)
    if (status) status = drop.value().bind(1, row.kind).bind(2, row.id).run();
  for (const auto& [run, lines] : cut.lines)
    if (status) status = count.value().bind(1, lines.events).bind(2, lines.metrics).bind(3, run).run();
  if (status)
    status = database_->execute(fmt::format("INSERT OR REPLACE INTO cut(one, event, at) VALUES(1, {}, {})", cut.event,
                                            cut.at.time_since_epoch().count()));
  has_trash_ = true;
  return status;
}

/// Behind a cut the events up to it are many: they go little by little.
Status StoreTables::drop_some() {
  Status dropped = database_->execute(
      fmt::format("DELETE FROM events WHERE id IN (SELECT id FROM events WHERE id <= (SELECT event FROM cut) "
                  "ORDER BY id LIMIT {})",
                  kDropMax));
  if (!dropped) return dropped;
  const auto more = database_->ask("SELECT EXISTS(SELECT 1 FROM events WHERE id <= (SELECT event FROM cut))");
  if (!more) return more.error();
  has_trash_ = more.value() == "1";
  return {};
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

std::int64_t StoreTables::file_bytes() const {
  std::int64_t bytes = 0;
  for (const char* end : {"", "-wal"}) {
    std::error_code error;
    const auto size = std::filesystem::file_size(path() + end, error);
    if (!error) bytes += static_cast<std::int64_t>(size);
  }
  return bytes;
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

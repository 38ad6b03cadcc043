#include "launcher/storage/database.hpp"

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cstring>

#include <fmt/format.h>

#include "common/base/assert.hpp"

namespace sgd::storage {
namespace {

/// For others that read or copy the file; nobody else writes to it.
constexpr int kBusyMs = 2000;

}  // namespace

void Statement::Finalize::operator()(sqlite3_stmt* statement) const {
  ::sqlite3_finalize(statement);
}

Statement& Statement::bind(int index, std::int64_t value) {
  SGD_ASSERT(::sqlite3_bind_int64(statement_.get(), index, value) == SQLITE_OK);
  return *this;
}

Statement& Statement::bind(int index, double value) {
  SGD_ASSERT(::sqlite3_bind_double(statement_.get(), index, value) == SQLITE_OK);
  return *this;
}

Statement& Statement::bind(int index, std::string_view value) {
  const int bound =
      ::sqlite3_bind_text64(statement_.get(), index, value.data(), value.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
  SGD_ASSERT(bound == SQLITE_OK);
  return *this;
}

Result<bool> Statement::step() {
  const int status = ::sqlite3_step(statement_.get());
  if (status == SQLITE_ROW) return true;
  if (status == SQLITE_DONE) {
    (void)::sqlite3_reset(statement_.get());  // Ignoring: it succeeds after success.
    return false;
  }
  Error error = owner_->error();
  (void)::sqlite3_reset(statement_.get());  // Ignoring: says the error of step() once more.
  return error;
}

Status Statement::run() {
  for (;;) {
    const Result<bool> row = step();
    if (!row) return row.error();
    if (!row.value()) return {};
  }
}

std::int64_t Statement::integer(int column) const {
  return ::sqlite3_column_int64(statement_.get(), column);
}

double Statement::real(int column) const {
  return ::sqlite3_column_double(statement_.get(), column);
}

std::string Statement::text(int column) const {
  const unsigned char* bytes = ::sqlite3_column_text(statement_.get(), column);
  const auto size = static_cast<std::size_t>(::sqlite3_column_bytes(statement_.get(), column));
  return bytes == nullptr ? std::string() : std::string(reinterpret_cast<const char*>(bytes), size);
}

void Database::Close::operator()(sqlite3* connection) const {
  (void)::sqlite3_close_v2(connection);
}

Result<std::unique_ptr<Database>> Database::open(const std::string& path) {
  // SQLite would leave the mode to the umask; its other files take over that of the first.
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return system_error("cannot open " + path);
  ::close(fd);
  std::unique_ptr<Database> database(new Database(path));
  sqlite3* connection = nullptr;
  const int opened = ::sqlite3_open_v2(path.c_str(), &connection, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
  database->connection_.reset(connection);
  if (opened != SQLITE_OK) return database->error();
  (void)::sqlite3_extended_result_codes(connection, 1);
  (void)::sqlite3_busy_timeout(connection, kBusyMs);
  return database;
}

Status Database::execute(const std::string& sql) {
  if (::sqlite3_exec(connection_.get(), sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) return error();
  return {};
}

Result<Statement> Database::prepare(std::string_view sql) const {
  sqlite3_stmt* statement = nullptr;
  const int prepared = ::sqlite3_prepare_v3(connection_.get(), sql.data(), static_cast<int>(sql.size()),
                                            SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  if (prepared != SQLITE_OK) return error();
  return Statement(*this, statement);
}

Result<std::string> Database::ask(std::string_view sql) const {
  auto statement = prepare(sql);
  if (!statement) return statement.error();
  const Result<bool> row = statement.value().step();
  if (!row) return row.error();
  return row.value() ? statement.value().text(0) : std::string();
}

void Database::roll_back() {
  if (::sqlite3_get_autocommit(connection_.get()) == 0)
    (void)execute("ROLLBACK");  // Ignoring: the error before is the one to tell.
}

bool Database::is_damaged() const {
  const int code = ::sqlite3_errcode(connection_.get()) & 0xff;
  return code == SQLITE_CORRUPT || code == SQLITE_NOTADB;
}

Error Database::error() const {
  const int system = ::sqlite3_system_errno(connection_.get());
  const int code = ::sqlite3_errcode(connection_.get()) & 0xff;
  const bool is_io = code == SQLITE_IOERR || code == SQLITE_FULL || code == SQLITE_CANTOPEN;
  const std::string cause = is_io && system != 0 ? fmt::format(" ({})", std::strerror(system)) : std::string();
  return Error{fmt::format("{}: {}{}", path_, ::sqlite3_errmsg(connection_.get()), cause), is_io ? system : 0};
}

}  // namespace sgd::storage

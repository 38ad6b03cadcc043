#pragma once
// SQLite as values: a connection and its prepared statements, errors as Result. Knows no table.
// A connection belongs to one thread at a time.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/result.hpp"

struct sqlite3;
struct sqlite3_stmt;

namespace sgd::storage {

class Database;

class Statement {
 public:
  /// Parameters count from 1, in the order of the statement's question marks; texts are copied.
  Statement& bind(int index, std::int64_t value);
  Statement& bind(int index, double value);
  Statement& bind(int index, std::string_view value);
  /// The next row: false when there is none, after which the statement can be bound again.
  [[nodiscard]] Result<bool> step();
  /// To its end; rows are dropped.
  [[nodiscard]] Status run();
  /// Columns of the row count from 0.
  [[nodiscard]] std::int64_t integer(int column) const;
  [[nodiscard]] double real(int column) const;
  [[nodiscard]] std::string text(int column) const;

 private:
  friend class Database;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  Statement(const Database& owner, sqlite3_stmt* statement) : owner_(&owner), statement_(statement) {}

  const Database* owner_;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

class Database {
 public:
  /// Creates the file, readable by its owner only, if it is missing.
  [[nodiscard]] static Result<std::unique_ptr<Database>> open(const std::string& path);

  [[nodiscard]] Status execute(const std::string& sql);
  [[nodiscard]] Result<Statement> prepare(std::string_view sql) const;
  /// The first column of the first row as text; empty without a row.
  [[nodiscard]] Result<std::string> ask(std::string_view sql) const;
  /// Ends a transaction that an error has left open.
  void roll_back();
  /// The last error means that the file is damaged, or no database at all.
  [[nodiscard]] bool is_damaged() const;
  /// The last error in words: "/state/coordinator.db: disk I/O error (No space left on device)".
  [[nodiscard]] Error error() const;

 private:
  struct Close {
    void operator()(sqlite3* connection) const;
  };
  explicit Database(std::string path) : path_(std::move(path)) {}

  std::string path_;
  std::unique_ptr<sqlite3, Close> connection_;
};

}  // namespace sgd::storage

#pragma once
// Where what comes from another machine, piece by piece, is put together: a checkpoint in a run's folder, or the files
// that a job has brought. A fetcher asks for what is missing and knows nothing more of it.

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.hpp"

namespace sgd::storage {

/// What is there of a file, after something was tried.
struct Held {
  std::uint64_t bytes = 0;
  std::uint64_t added = 0;   ///< Of them, by this attempt.
  bool is_stored = false;    ///< It belongs to something that is whole: nothing is written.
  bool is_gap = false;       ///< Bytes between `bytes` and the given offset are missing.
  bool is_too_much = false;  ///< The quota is used up; `error` says which.
  std::string error;         ///< Why not everything is written; empty: it is.
};

/// Blocks; one thread at a time per file.
class Incoming {
 public:
  virtual ~Incoming() = default;

  /// `file` is "PATH/NAME".
  [[nodiscard]] virtual Held held(const std::string& file) const = 0;
  /// Adds what of `bytes` is new; they begin at `offset` of the file.
  [[nodiscard]] virtual Held append(const std::string& file, std::uint64_t offset, std::string_view bytes) = 0;
  /// All of PATH is here, and was proven.
  [[nodiscard]] virtual bool is_stored(const std::string& path) const = 0;
  /// What was appended is proven and put in its place. What is damaged is removed, so that the next attempt begins
  /// anew.
  [[nodiscard]] virtual Status finish(const std::string& path) = 0;
};

}  // namespace sgd::storage

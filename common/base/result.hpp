#pragma once
// Result<T>: a value, or the error of the world (network, child, disk) that prevented it,
// as text that names the subject. User errors in job files are collected elsewhere
// (json/diagnostics.hpp); programmer errors are assertions.

#include <string>
#include <utility>
#include <variant>

#include "common/base/assert.hpp"

namespace sgd {

struct Error {
  std::string message;  ///< Names the subject and the fix; no trailing full stop or newline.
  int code = 0;         ///< errno where the system said one, else 0.
};

/// The error of the system call that just failed: "<what>: <strerror(errno)>".
[[nodiscard]] Error system_error(std::string what);

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  [[nodiscard]] bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  [[nodiscard]] T& value() & {
    SGD_ASSERT(ok());
    return std::get<0>(state_);
  }
  [[nodiscard]] const T& value() const& {
    SGD_ASSERT(ok());
    return std::get<0>(state_);
  }
  [[nodiscard]] T&& value() && {
    SGD_ASSERT(ok());
    return std::get<0>(std::move(state_));
  }
  [[nodiscard]] const Error& error() const {
    SGD_ASSERT(!ok());
    return std::get<1>(state_);
  }

 private:
  std::variant<T, Error> state_;
};

/// Success without a value, or an error.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)), failed_(true) {}
  [[nodiscard]] bool ok() const { return !failed_; }
  explicit operator bool() const { return ok(); }
  [[nodiscard]] const Error& error() const {
    SGD_ASSERT(failed_);
    return error_;
  }

 private:
  Error error_;
  bool failed_ = false;
};

}  // namespace sgd

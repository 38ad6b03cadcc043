#pragma once
// Programmer errors. SGD_ASSERT is on in every build: a broken invariant stops the
// program with the expression and its place before it can damage a run.

namespace sgd {
[[noreturn]] void assertion_failed(const char* expression, const char* file, int line) noexcept;
}  // namespace sgd

#define SGD_ASSERT(expression) \
  (static_cast<bool>(expression) ? void(0) : ::sgd::assertion_failed(#expression, __FILE__, __LINE__))

#pragma once
// A debugger of another process, which tells nobody how that one has ended until it ends itself.

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

namespace sgd::trace_test {

class QuietTracer {
 public:
  explicit QuietTracer(pid_t traced) {
    int told[2] = {-1, -1};
    REQUIRE(::pipe(told) == 0);
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      const char byte = ::ptrace(PTRACE_SEIZE, traced, nullptr, nullptr) == 0 ? 'y' : 'n';
      (void)!::write(told[1], &byte, 1);
      for (;;) ::pause();
    }
    char byte = 'n';
    CHECK(::read(told[0], &byte, 1) == 1);
    ::close(told[0]);
    ::close(told[1]);
    traces_ = byte == 'y';
    if (!traces_) WARN("skipped: no process may be traced here");
  }
  ~QuietTracer() { end(); }
  QuietTracer(const QuietTracer&) = delete;
  QuietTracer& operator=(const QuietTracer&) = delete;

  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  /// False: that is not allowed here.
  [[nodiscard]] bool traces() const { return traces_; }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
  bool traces_ = false;
};

}  // namespace sgd::trace_test

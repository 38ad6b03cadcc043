#pragma once
// Daemons of this program that live as long as its launcher: started with a pipe as their standard input, whose end
// ends them, and started again when they die. A thread of its own watches them, so that the launcher can do what it
// likes.

#include <sys/types.h>

#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/base/result.hpp"
#include "common/base/time.hpp"
#include "launcher/process/pidfd.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::rendezvous {

class DaemonChildren {
 public:
  static constexpr Duration kRestartFirst = std::chrono::milliseconds(20);
  static constexpr Duration kRestartMax = std::chrono::seconds(2);
  static constexpr Duration kEndLimit = std::chrono::seconds(15);  ///< For all of them; then they are killed.

  struct Daemon {
    std::string name;  ///< "coordinator"
    std::vector<std::string> argv;
    std::string log;  ///< File that gets what it says.
  };

  struct Refusal {
    std::string words;   ///< What the daemon said last.
    int exit_code = -1;  ///< Its own.
  };

  DaemonChildren() = default;
  /// Ends all of them, and waits for that.
  ~DaemonChildren();
  DaemonChildren(const DaemonChildren&) = delete;
  DaemonChildren& operator=(const DaemonChildren&) = delete;

  [[nodiscard]] Status start(Daemon daemon);
  /// It has ended by itself before it was of use, or with kUnreachable, an agent that is not taken: that is final.
  [[nodiscard]] std::optional<Refusal> refusal();
  /// It was of use: it is started again from now on, however it ends.
  void settled();
  /// Whether `words` are in the beginning of its log.
  [[nodiscard]] bool has_said(const std::string& name, const std::string& words) const;
  /// The newest line of its log.
  [[nodiscard]] std::string last_words(const std::string& name) const;
  /// For its pid; 0: it does not live at the moment.
  [[nodiscard]] pid_t pid(const std::string& name) const;
  /// Asks one to end, and does not start it again.
  void terminate(const std::string& name);
  void end();

 private:
  struct Child {
    Daemon daemon;
    process::UniqueFd input;  ///< Our end.
    process::UniqueFd pidfd;
    pid_t pid = 0;  ///< 0: it has ended.
    bool is_wanted = true;
    Duration delay = kRestartFirst;
    TimePoint start_at{};  ///< Of the next life.
  };
  [[nodiscard]] static Status spawn(Child& child);
  void watch();
  void look_after(Child& child, TimePoint now);
  [[nodiscard]] const Child* find(const std::string& name) const;

  mutable std::mutex mutex_;
  std::vector<Child> children_;
  std::optional<Refusal> refusal_;
  bool is_settled_ = false;
  bool is_ending_ = false;
  process::UniqueFd wakeup_;  ///< An eventfd.
  // tidy: allow thread: it waits for children while the launcher is in an event loop that is not ours
  std::thread thread_;
};

}  // namespace sgd::rendezvous

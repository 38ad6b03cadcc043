#pragma once
// A real keeper in a forked child, with the test at the agent's end of its socket. Every wait
// has a deadline; when the test leaves, the keeper must end and leave no process behind.

#include <functional>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "common/base/time.hpp"
#include "common/messages/frame.hpp"
#include "common/messages/keeper.hpp"
#include "launcher/process/signal_names.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::keeper_test {

/// A folder that goes with the test.
class TemporaryDir {
 public:
  TemporaryDir();
  ~TemporaryDir();
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

[[nodiscard]] std::string read_file(const std::string& path);
/// Of a running process: a line of /proc/<pid>/status in KiB, for example "VmHWM".
[[nodiscard]] long memory_kib(int pid, const std::string& key);
/// What `pid` has taken of a core so far.
[[nodiscard]] Duration cpu_time_of(int pid);
/// Looks every millisecond until `done`; false: not within `limit`.
[[nodiscard]] bool wait_until(Duration limit, const std::function<bool()>& done);
/// Waits until `pid` is no process any more.
[[nodiscard]] bool wait_gone(int pid, Duration limit);
/// Waits until `path` exists and is not empty, and returns its content.
[[nodiscard]] std::string wait_file(const std::string& path, Duration limit);

class TestKeeper {
 public:
  /// A test that is slow is no console that does not move, unless that is what it is about.
  explicit TestKeeper(Duration console_patience = std::chrono::minutes(5));
  ~TestKeeper();
  TestKeeper(const TestKeeper&) = delete;
  TestKeeper& operator=(const TestKeeper&) = delete;

  void send(const keeper::ToKeeper& message);
  /// Reads until a message of type T has come, and takes it out of the list.
  template <class T>
  T wait(Duration limit = std::chrono::seconds(60)) {
    T found;
    require_until("a message", limit, [&] { return take(found); });
    return found;
  }
  template <class T>
  bool take(T& out) {
    for (auto at = messages.begin(); at != messages.end(); ++at) {
      if (T* body = std::get_if<T>(&*at)) {
        out = std::move(*body);
        messages.erase(at);
        return true;
      }
    }
    return false;
  }
  /// Reads from the keeper until `done`, which what it says decides, or fails the test.
  void require_until(const char* what, Duration limit, const std::function<bool()>& done);
  /// One read of what is there within `limit`; false when nothing came.
  bool read_some(Duration limit);
  /// Starts `script` in a shell as `rank` of generation 1, its log in `dir`.
  void spawn_shell(Rank rank, const std::string& script, const std::string& log_path);
  /// Closes our end, as a dying agent does.
  void drop_link() { socket_.reset(); }
  /// Waits for the keeper's own end.
  process::ExitStatus wait_keeper(Duration limit = std::chrono::seconds(30));

  [[nodiscard]] int pid() const { return pid_; }
  [[nodiscard]] int socket() const { return socket_.get(); }

  bool acknowledge = true;                              ///< Answer every chunk with OutputAck.
  std::vector<keeper::FromKeeper> messages;             ///< Not waited for yet.
  std::map<Rank, std::string> output;                   ///< Console lines by rank.
  std::map<Rank, std::string> errors;                   ///< Of them those of stderr.
  std::map<Rank, std::vector<std::string>> open_lines;  ///< Lines as they were written, one after the other.
  std::int64_t unacknowledged = 0;
  std::vector<process::UniqueFd> descriptors;  ///< That came with Started.
  bool closed = false;                         ///< The keeper has closed its end.

 private:
  void take_frame(const Frame& frame);

  int pid_ = -1;
  process::UniqueFd socket_;
  process::UniqueFd pidfd_;
  FrameReader reader_;
};

}  // namespace sgd::keeper_test

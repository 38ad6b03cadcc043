#pragma once
// The run's fork server as the keeper sees it: a child with a control socket. Queues requests
// that the socket does not take at once, decodes answers, and says why it died. Knows nothing
// of ranks beyond the messages; never blocks after start().

#include <deque>
#include <string>
#include <vector>

#include "common/base/time.hpp"
#include "common/messages/fork_server.hpp"
#include "common/messages/keeper.hpp"
#include "launcher/process/signal_names.hpp"
#include "launcher/process/spawn.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::keeper {

void set_environment(const Environment& environment, process::SpawnOptions& options);

/// Requests that wait for the fork server's socket.
inline constexpr std::size_t kForkRequestsMax = 4096;
/// Longest message between keeper and fork server; a socket with default buffers still takes it.
inline constexpr std::size_t kForkMessageBytesMax = 128 << 10;

class ForkServerProcess {
 public:
  struct Reply {
    fork_server::FromForkServer message;
    process::UniqueFd pidfd;  ///< With Forked.
  };

  /// Starts it and queues the job for it.
  [[nodiscard]] static Result<ForkServerProcess> start(const StartForkServer& request, TimePoint now);

  /// One that has been held ready is told of its run, whose log it writes from now on; answered as the first time.
  [[nodiscard]] Status prepare_again(const std::string& log_path, const nlohmann::json& job);

  [[nodiscard]] int pid() const { return pid_; }
  [[nodiscard]] int pidfd() const { return pidfd_.get(); }
  /// -1 once it has closed its end.
  [[nodiscard]] int socket() const { return socket_.get(); }
  [[nodiscard]] bool wants_write() const { return socket_ && !queue_.empty(); }
  [[nodiscard]] TimePoint started_at() const { return started_at_; }

  /// Whether one message holds what the rank is given.
  [[nodiscard]] static bool takes(const fork_server::Fork& fork);
  /// `pipes` are the rank's write ends, of stdout and of stderr; they are closed here once sent.
  [[nodiscard]] Status request_fork(const fork_server::Fork& fork, std::vector<process::UniqueFd> pipes);
  void flush();
  /// Answers that have arrived; an error when it sends what it must not.
  [[nodiscard]] Status receive(std::vector<Reply>& out);
  void kill();
  /// `what`, with the last lines that it wrote to its log.
  [[nodiscard]] std::string explain(const std::string& what) const;

 private:
  struct Request {
    std::string message;
    std::vector<process::UniqueFd> pipes;
  };

  [[nodiscard]] Result<process::UniqueFd> open_log(const std::string& path);
  [[nodiscard]] Status enqueue(std::string message, std::vector<process::UniqueFd> pipes);

  int pid_ = -1;
  process::UniqueFd pidfd_;
  process::UniqueFd socket_;
  std::string log_path_;
  std::size_t log_begin_ = 0;  ///< Size of the log before it started.
  TimePoint started_at_{};
  std::deque<Request> queue_;
};

}  // namespace sgd::keeper

#pragma once
// The ranks' end of the world: accepts links on Unix sockets, one for each run, cuts them into lines, and turns
// lines into messages. Only processes of the run are let in: of its account, and below its keeper. A link that does
// not say hello in time, sends a line that is too long or no JSON is dropped, and nothing else suffers.
//
// Ranks that come back (link::Hello::returns): what is sent to them is kept until they have it. After a
// replay, which makes their links anew without connections, each is waited for until its process ends:
//   replayed --hello with its token--> open, under its old number, and both send what the other lacks
//       '--its process has ended, or its wait--> LinkClosed

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "common/base/result.hpp"
#include "common/base/time.hpp"
#include "common/messages/link.hpp"
#include "common/messages/resend_queue.hpp"
#include "launcher/agent/agent_shell_state.hpp"
#include "launcher/agent/local_stream.hpp"
#include "launcher/core/agent_io.hpp"
#include "launcher/net/timer.hpp"
#include "launcher/net/work_meter.hpp"
#include "launcher/process/accept_loop.hpp"
#include "launcher/process/unix_socket.hpp"

namespace sgd::agent {

class WorkerServer {
 public:
  static constexpr std::size_t kStrangersMax = 256;  ///< Links to one run that have not said hello yet.
  static constexpr Duration kHelloDeadline = std::chrono::seconds(10);
  static constexpr std::size_t kKeptBytesMax = 8 << 20;  ///< Of one link, not acknowledged.
  /// So long at a time the lines of one link are taken: thousands may have come in one read.
  static constexpr Duration kTurn = std::chrono::milliseconds(5);
  static constexpr Duration kLinkWork = std::chrono::microseconds(200);  ///< Of one link, beside its lines.
  /// Of a link that has had its share: less than a rank's last words are waited for (core::NodeRun::kLinkDrain).
  static constexpr Duration kRestMax = std::chrono::milliseconds(50);
  /// Of the event loop's time, for one rank; a run has as much as its ranks here together.
  net::WorkShare work_share;
  Duration hello_deadline = kHelloDeadline;

  struct Handlers {
    std::function<void(core::AgentEvent)> on_event;
    std::function<void(std::string reason)> on_dropped;
    /// Of a run's keeper, for an assignment that is sent again.
    std::function<std::vector<process::SharedFd>(const RunId&)> descriptors_of = {};
    /// Whether the process is one of the run's.
    std::function<bool(const RunId&, int pid)> has_process = {};
  };

  WorkerServer(boost::asio::io_context& io, Handlers handlers);
  /// Listens at `path` for ranks of `run`, who are `owner` (nothing: we). What was there is removed.
  [[nodiscard]] Status listen(const RunId& run, const std::string& path,
                              const std::optional<process::SocketOwner>& owner = {});
  [[nodiscard]] bool listens(const RunId& run) const { return listeners_.contains(run); }
  /// No new links to the run.
  void forget(const RunId& run);
  void send(core::ConnectionId connection, const link::ToWorker& message, std::vector<process::SharedFd> descriptors);
  /// No line of it is taken from here on; what has been read and not taken waits here, the rest at its peer.
  void pause(core::ConnectionId connection);
  void resume(core::ConnectionId connection);
  void drop(core::ConnectionId connection, const std::string& reason);
  /// No new links; existing ones end.
  void stop();

  // A replay: links without connections.
  void replay(const core::agent_event::FromWorker& said);
  void replay(const core::agent_event::LinkClosed& closed) { connections_.erase(closed.connection); }
  /// What the next life needs of a link that has said hello; nothing: there is none.
  [[nodiscard]] std::optional<KeptLink> kept(core::ConnectionId connection) const;
  [[nodiscard]] core::ConnectionId next() const { return next_; }
  /// In that life, before all else.
  void restore(const std::map<core::ConnectionId, KeptLink>& links, core::ConnectionId next);
  /// And its end: who is gone already, and who goes without having come back, is told. Ranks wait for `wait`.
  void await_return(Duration wait);

 private:
  struct Connection {
    std::shared_ptr<LocalStream> stream;         ///< Null: it is waited for.
    std::shared_ptr<core::ConnectionId> number;  ///< What the stream's handlers know it by.
    std::string partial;                         ///< Bytes after the last newline.
    bool is_dropped = false;                     ///< Its end is on its way, and nothing more of it is taken.
    bool is_paused = false;
    std::unique_ptr<net::Timer> rest;  ///< While it is not read, for its turn or its share.
    std::string untaken;               ///< While it is paused or rests: at most what one read takes.
    int peer_pid = 0;
    bool greeted = false;  ///< Its hello has come.
    std::unique_ptr<net::Timer> hello_timer;
    bool returns = false;  ///< It comes back.
    std::string token;
    RunId run;  ///< Whose socket it came to.
    ResendQueue sent;
    std::int64_t received = 0;  ///< Counted lines.
    std::int64_t told_received = 0;
    std::unique_ptr<boost::asio::posix::stream_descriptor> process;  ///< While it is waited for: its pidfd.
  };

  struct RunListener {
    std::string path;
    std::unique_ptr<process::AcceptLoop> accepts;
    net::WorkMeter meter;
  };

  void add(const RunId& run, uid_t user, process::UniqueFd socket);
  void on_bytes(const std::shared_ptr<core::ConnectionId>& number, std::string_view bytes);
  [[nodiscard]] bool take_lines(const std::shared_ptr<core::ConnectionId>& number, std::string_view bytes,
                                TimePoint until);
  void on_line(core::ConnectionId id, Connection& connection, std::string_view line);
  [[nodiscard]] Duration charge(const RunId& run, Duration work);
  void rest(Connection& connection, Duration duration);
  void go_on(const std::shared_ptr<core::ConnectionId>& number);
  [[nodiscard]] bool take_back(core::ConnectionId stranger, const link::Hello& hello);
  void acknowledge(Connection& connection);
  void watch_process(core::ConnectionId id, Connection& connection);
  void close_soon(core::ConnectionId id);

  boost::asio::io_context& io_;
  Handlers handlers_;
  std::map<RunId, RunListener> listeners_;
  net::Timer wait_timer_;
  std::map<core::ConnectionId, Connection> connections_;
  core::ConnectionId next_ = 1;
};

}  // namespace sgd::agent

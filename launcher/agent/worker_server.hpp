#pragma once
// The ranks' end of the world: accepts links on a Unix socket, cuts them into lines, and turns
// lines into messages. Only this user's processes are let in; a link that does not say hello
// in time, sends a line that is too long or no JSON is dropped, and nothing else suffers.

#include <functional>
#include <map>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/base/result.hpp"
#include "common/base/time.hpp"
#include "common/messages/link.hpp"
#include "launcher/agent/local_stream.hpp"
#include "launcher/core/agent_io.hpp"

namespace sgd::agent {

class WorkerServer {
 public:
  static constexpr std::size_t kStrangersMax = 256;  ///< Links that have not said hello yet.
  static constexpr Duration kHelloDeadline = std::chrono::seconds(10);

  using OnEvent = std::function<void(core::AgentEvent)>;
  using OnDropped = std::function<void(std::string reason)>;

  WorkerServer(boost::asio::io_context& io, OnEvent on_event, OnDropped on_dropped);
  /// Listens at `path`, which must not exist.
  [[nodiscard]] Status listen(const std::string& path);
  void send(core::ConnectionId connection, const link::ToWorker& message, const std::vector<int>& descriptors);
  void drop(core::ConnectionId connection, const std::string& reason);
  /// No new links; existing ones end.
  void stop();

 private:
  struct Connection {
    std::shared_ptr<LocalStream> stream;
    std::string partial;   ///< Bytes after the last newline.
    int peer_pid = 0;
    bool greeted = false;  ///< Its hello has come.
    std::unique_ptr<boost::asio::steady_timer> hello_timer;
  };

  void wait_accept();
  void accept_all();
  void add(process::UniqueFd socket);
  void on_bytes(core::ConnectionId id, std::string_view bytes);
  void on_line(core::ConnectionId id, Connection& connection, std::string_view line);

  boost::asio::io_context& io_;
  OnEvent on_event_;
  OnDropped on_dropped_;
  boost::asio::posix::stream_descriptor listener_;
  std::map<core::ConnectionId, Connection> connections_;
  core::ConnectionId next_ = 1;
};

}  // namespace sgd::agent

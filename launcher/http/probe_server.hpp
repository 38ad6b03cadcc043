#pragma once
// The probes of a daemon, over HTTP on 127.0.0.1 and on the daemon's own event loop, so that an answer proves
// that the loop turns. Nobody on another machine reaches it. What is answered is probe_reply's.
//
// Everything has a limit: connections, bytes and fields of a header, requests of a connection, one deadline
// per request from its first byte to the last byte of its answer. When all connections are taken, the one
// that has been idle for the longest makes room for a new one; when none is idle, the oldest request that is not
// whole does, and when all are, the oldest of all.

#include <cstddef>
#include <functional>
#include <memory>

#include <boost/asio/io_context.hpp>

#include "common/base/result.hpp"
#include "common/base/time.hpp"
#include "launcher/http/probe_reply.hpp"

namespace sgd::http {

struct ProbeLimits {
  std::size_t connections = 32;
  int requests_per_connection = 1000;          ///< The last one is answered with "Connection: close".
  Duration request = std::chrono::seconds(5);  ///< A request and its answer; also a connection's first byte.
  Duration idle = std::chrono::seconds(60);    ///< Between two requests.
};

class ProbeServer {
 public:
  /// Both functions are called on the event loop, once a request. `io` must outlive the server.
  ProbeServer(boost::asio::io_context& io, std::function<std::string()> metrics, std::function<Health()> health,
              ProbeLimits limits = {});
  ~ProbeServer();

  /// On 127.0.0.1; port 0 takes a free one. Errors: no such port, in use.
  Status listen(int port);
  /// 0 before listen().
  [[nodiscard]] int port() const;
  /// Closes the port and every connection; neither function is called again.
  void stop();

 private:
  struct Shared;
  class Session;
  std::shared_ptr<Shared> shared_;
};

}  // namespace sgd::http

#include "launcher/net/listener.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>

namespace sgd::net {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

/// Descriptors have run out, for example: whoever waits is served when some are free again.
constexpr Duration kPause = std::chrono::milliseconds(100);

/// Removes what a listener that is dead has left at `path`. Error: somebody listens there, or it is something else.
Status clear_path(const std::string& path) {
  using asio::local::stream_protocol;
  struct stat facts {};
  if (::lstat(path.c_str(), &facts) != 0) return {};
  if (!S_ISSOCK(facts.st_mode)) return Error{"there is something else of that name", EEXIST};
  const int probe = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (probe < 0) return system_error("cannot look whether somebody listens there");
  const stream_protocol::endpoint endpoint(path);
  const int connected = ::connect(probe, endpoint.data(), static_cast<socklen_t>(endpoint.size()));
  const bool is_dead = connected != 0 && errno == ECONNREFUSED;
  ::close(probe);
  if (!is_dead) return Error{"somebody listens there", EADDRINUSE};
  return ::unlink(path.c_str()) == 0 ? Status{} : system_error("cannot remove what a dead listener has left");
}

}  // namespace

Result<std::unique_ptr<Listener>> Listener::open(asio::io_context& io, const Address& address,
                                                 std::shared_ptr<const TlsContext> tls) {
  if (address.is_local_socket()) return open_path(io, address);
  boost::system::error_code error;
  const asio::ip::address ip = asio::ip::make_address(address.host, error);
  const std::string name = to_text(address);
  if (error || address.port < 0 || address.port > 65535)
    return Error{fmt::format("cannot listen on {}: not an IP address and a port, as 127.0.0.1:7070 is", name)};
  if (!tls && !ip.is_loopback())
    return Error{
        fmt::format("cannot listen on {}: without a TLS identity only loopback addresses are served, as "
                    "127.0.0.1 is; run `sgd-launch init` to make one",
                    name)};
  if (tls && tls->own().role != Role::kCoordinator)
    return Error{fmt::format("cannot listen on {}: the TLS identity is of {} {}, and only a coordinator's listens",
                             name, role_name(tls->own().role), tls->own().name)};
  const tcp::endpoint endpoint(ip, static_cast<std::uint16_t>(address.port));
  Acceptor acceptor(io);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  tcp::endpoint bound;
  socklen_t size = static_cast<socklen_t>(bound.capacity());
  if (!error && ::getsockname(acceptor.native_handle(), bound.data(), &size) != 0)
    error.assign(errno, boost::system::system_category());
  if (error) return Error{fmt::format("cannot listen on {}: {}", name, error.message()), error.value()};
  return std::unique_ptr<Listener>(new Listener(std::move(acceptor), std::move(tls), bound.port(), ""));
}

/// Only our own account gets to the socket's file; who comes is looked at besides, since root and whoever has changed
/// the file's mode do too.
Result<std::unique_ptr<Listener>> Listener::open_path(asio::io_context& io, const Address& address) {
  using asio::local::stream_protocol;
  const std::string& path = address.path;
  const std::string name = to_text(address);
  if (path.size() >= sizeof(sockaddr_un::sun_path))
    return Error{
        fmt::format("cannot listen on {}: the path has {} bytes, and a Unix socket's at most {}: name a "
                    "shorter one with --listen unix:PATH",
                    name, path.size(), sizeof(sockaddr_un::sun_path) - 1)};
  if (const Status cleared = clear_path(path); !cleared)
    return Error{fmt::format("cannot listen on {}: {}", name, cleared.error().message), cleared.error().code};
  boost::system::error_code error;
  const stream_protocol::endpoint endpoint(path);
  Acceptor acceptor(io);
  acceptor.open(endpoint.protocol(), error);
  // The file gets the mode that the socket has when it is bound: at no moment may others connect.
  if (!error && ::fchmod(acceptor.native_handle(), 0600) != 0) error.assign(errno, boost::system::system_category());
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) return Error{fmt::format("cannot listen on {}: {}", name, error.message()), error.value()};
  return std::unique_ptr<Listener>(new Listener(std::move(acceptor), nullptr, 0, path));
}

Listener::Listener(Acceptor acceptor, std::shared_ptr<const TlsContext> tls, int port, std::string path)
    : acceptor_(std::move(acceptor)),
      pause_(acceptor_.get_executor()),
      tls_(std::move(tls)),
      port_(port),
      path_(std::move(path)) {}

Listener::~Listener() {
  if (is_local_socket()) (void)::unlink(path_.c_str());
}

void Listener::start(OnSocket on_socket) {
  on_socket_ = std::move(on_socket);
  accept();
}

void Listener::accept() {
  acceptor_.async_accept(
      [this, is_here = std::weak_ptr(is_here_)](const boost::system::error_code& error, Socket socket) {
        if (is_here.expired() || error == asio::error::operation_aborted) return;
        if (error) return pause_.after(kPause, [this] { accept(); });
        on_socket_(std::move(socket));
        if (!is_here.expired()) accept();
      });
}

}  // namespace sgd::net

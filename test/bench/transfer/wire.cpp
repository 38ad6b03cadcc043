#include "test/bench/transfer/wire.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include <openssl/ssl.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "common/base/assert.hpp"
#include "launcher/net/identity_files.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::bench {
namespace {

using boost::asio::ip::tcp;
using Clock = std::chrono::steady_clock;
using process::UniqueFd;

constexpr std::size_t kPiece = 256 << 10;

struct FreeSsl {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};

/// One end: bytes over a connected socket, in TLS when the wire has identities.
class End {
 public:
  End(const Wire& wire, int socket, bool accepts) : socket_(socket) {
    if (wire.head_identity.empty()) return;
    context_.reset(SSL_CTX_new(TLS_method()));
    SGD_ASSERT(SSL_CTX_set_min_proto_version(context_.get(), TLS1_3_VERSION) == 1 &&
               SSL_CTX_set_num_tickets(context_.get(), 0) == 1);
    const std::string& folder = accepts ? wire.head_identity : wire.node_identity;
    const std::string file = net::identity_file(folder);
    SGD_ASSERT(SSL_CTX_use_certificate_file(context_.get(), file.c_str(), SSL_FILETYPE_PEM) == 1 &&
               SSL_CTX_use_PrivateKey_file(context_.get(), file.c_str(), SSL_FILETYPE_PEM) == 1);
    ssl_.reset(SSL_new(context_.get()));
    SGD_ASSERT(SSL_set_fd(ssl_.get(), socket) == 1);
    SGD_ASSERT((accepts ? SSL_accept(ssl_.get()) : SSL_connect(ssl_.get())) == 1);
  }

  void write_all(const char* from, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes;) {
      const ssize_t count = ssl_ ? SSL_write(ssl_.get(), from + at, static_cast<int>(bytes - at))
                                 : ::send(socket_, from + at, bytes - at, 0);
      SGD_ASSERT(count > 0);
      at += static_cast<std::size_t>(count);
    }
  }
  std::size_t read_some(std::vector<char>& to) {
    const ssize_t count =
        ssl_ ? SSL_read(ssl_.get(), to.data(), static_cast<int>(to.size())) : ::recv(socket_, to.data(), to.size(), 0);
    SGD_ASSERT(count > 0);
    return static_cast<std::size_t>(count);
  }

 private:
  int socket_;
  std::unique_ptr<SSL_CTX, FreeSsl> context_;
  std::unique_ptr<SSL, FreeSsl> ssl_;
};

void send_all(const Wire& wire, const tcp::endpoint& to, std::size_t bytes, const std::string& from) {
  boost::asio::io_context io;
  tcp::socket socket(io);
  socket.connect(to);
  End end(wire, socket.native_handle(), false);
  const UniqueFd file(from.empty() ? -1 : ::open(from.c_str(), O_RDONLY | O_CLOEXEC));
  std::vector<char> piece(kPiece, 'x');
  for (std::size_t sent = 0; sent < bytes; sent += kPiece) {
    if (!from.empty()) SGD_ASSERT(::read(file.get(), piece.data(), kPiece) > 0);
    end.write_all(piece.data(), std::min(kPiece, bytes - sent));
  }
  (void)::shutdown(socket.native_handle(), SHUT_WR);
  char last = 0;
  (void)::recv(socket.native_handle(), &last, 1, 0);  // Until the other side has read all.
}

double receive_all(const Wire& wire, tcp::acceptor& acceptor, std::size_t bytes, const std::string& to) {
  tcp::socket socket = acceptor.accept();
  End end(wire, socket.native_handle(), true);
  const auto begin = Clock::now();
  const UniqueFd file(to.empty() ? -1 : ::open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  std::vector<char> piece(kPiece);
  for (std::size_t have = 0; have < bytes;) {
    const std::size_t count = end.read_some(piece);
    if (!to.empty()) SGD_ASSERT(::write(file.get(), piece.data(), count) == static_cast<ssize_t>(count));
    have += count;
  }
  if (!to.empty()) SGD_ASSERT(::fsync(file.get()) == 0);
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

void in_two(const Wire& wire, const std::function<void()>& child, const std::function<void()>& parent) {
  const pid_t pid = ::fork();
  SGD_ASSERT(pid >= 0);
  if (pid == 0) {
    if (!wire.node_netns.empty()) {
      const UniqueFd there(::open(("/run/netns/" + wire.node_netns).c_str(), O_RDONLY | O_CLOEXEC));
      SGD_ASSERT(::setns(there.get(), CLONE_NEWNET) == 0);
    }
    child();
    ::_exit(0);
  }
  parent();
  int status = 0;
  SGD_ASSERT(::waitpid(pid, &status, 0) == pid && status == 0);
}

double raw_stream(const Wire& wire, std::size_t bytes, const std::string& from, const std::string& to) {
  boost::asio::io_context io;
  tcp::acceptor acceptor(io, {boost::asio::ip::make_address(wire.host), 0});
  const tcp::endpoint at = acceptor.local_endpoint();
  double seconds = 0;
  in_two(
      wire, [&] { send_all(wire, at, bytes, from); }, [&] { seconds = receive_all(wire, acceptor, bytes, to); });
  return seconds;
}

}  // namespace sgd::bench

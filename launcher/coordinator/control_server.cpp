#include "launcher/coordinator/control_server.hpp"

#include <unistd.h>

#include <memory>

#include <fmt/format.h>
#include <boost/asio/buffer.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include "common/messages/codec.hpp"
#include "launcher/process/unix_socket.hpp"

namespace sgd::coordinator {
namespace {

using boost::asio::local::stream_protocol;
constexpr auto kSilenceMax = std::chrono::seconds(10);

/// One client: reads a line, answers it, and reads on until it closes, is silent or sends too much.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(stream_protocol::socket socket, ControlServer::Answer answer)
      : socket_(std::move(socket)), answer_(std::move(answer)), timer_(socket_.get_executor()) {}

  void read() {
    timer_.expires_after(kSilenceMax);
    timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      boost::system::error_code ignored;
      if (!error) self->socket_.close(ignored);
    });
    boost::asio::async_read_until(
        socket_, boost::asio::dynamic_buffer(buffer_, kControlLineBytesMax), '\n',
        [self = shared_from_this()](const boost::system::error_code& error, std::size_t size) {
          self->timer_.cancel();
          if (!error) return self->on_line(size);
          if (error == boost::asio::error::not_found) self->refuse_line();
        });
  }

 private:
  void on_line(std::size_t size) {
    const auto request = codec::parse_object(buffer_.substr(0, size), codec::kDepthMax);
    buffer_.erase(0, size);
    write(request ? answer_(request.value()) : nlohmann::ordered_json{{"ok", false}, {"error", "no JSON object"}},
          true);
  }

  /// Where the next one begins is not known: it is the last.
  void refuse_line() {
    write({{"ok", false}, {"error", fmt::format("a request is longer than {} KiB", kControlLineBytesMax >> 10)}},
          false);
  }

  void write(const nlohmann::ordered_json& reply, bool reads_on) {
    reply_ = reply.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
    boost::asio::async_write(
        socket_, boost::asio::buffer(reply_),
        [self = shared_from_this(), reads_on](const boost::system::error_code& error, std::size_t) {
          if (!error && reads_on) self->read();
        });
  }

  stream_protocol::socket socket_;
  ControlServer::Answer answer_;
  boost::asio::steady_timer timer_;
  std::string buffer_;
  std::string reply_;
};

}  // namespace

ControlServer::ControlServer(boost::asio::io_context& io, Answer answer) : io_(io), answer_(std::move(answer)) {}

Status ControlServer::listen(const std::string& path) {
  auto listener = process::listen_unix(path);
  if (!listener) return listener.error();
  process::AcceptLoop::Handlers handlers;
  handlers.on_socket = [this](process::UniqueFd socket) {
    const auto peer = process::peer_credentials(socket.get());
    if (!peer || (peer.value().uid != ::getuid() && peer.value().uid != 0)) return;
    stream_protocol::socket stream(io_, stream_protocol(), socket.release());
    std::make_shared<Session>(std::move(stream), answer_)->read();
  };
  accepts_.emplace(io_, std::move(listener).value(), std::move(handlers));
  return {};
}

void ControlServer::stop() {
  accepts_.reset();
}

}  // namespace sgd::coordinator

#include "launcher/net/connection.hpp"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <utility>
#include <vector>

#include <boost/asio/post.hpp>
#include <fmt/format.h>

#include "common/base/assert.hpp"

namespace sgd::net {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

constexpr int kReadsPerTurn = 8;  // Then the others have their turn.
constexpr std::size_t kBuffersPerWrite = 64;

std::string name_of(const tcp::socket& socket) {
  boost::system::error_code error;
  const tcp::endpoint peer = socket.remote_endpoint(error);
  return error ? "a peer that is gone" : fmt::format("{}:{}", peer.address().to_string(), peer.port());
}

void set_options(tcp::socket& socket, const ConnectionLimits& limits) {
  boost::system::error_code ignored;  // A socket that is gone already is found out by the first read.
  socket.non_blocking(true, ignored);
  socket.set_option(tcp::no_delay(true), ignored);
  socket.set_option(asio::socket_base::keep_alive(true), ignored);
  const auto timeout = static_cast<unsigned>(to_seconds(limits.unanswered) * 1e3);
  (void)::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof(timeout));
}

}  // namespace

Connection::Connection(tcp::socket socket, ReadBuffer& buffer, ConnectionLimits limits, hello::Hello own)
    : socket_(std::move(socket)),
      hello_timer_(socket_.get_executor()),
      buffer_(buffer),
      limits_(limits),
      own_(own),
      peer_(name_of(socket_)) {}

void Connection::start(Handlers handlers) {
  handlers_ = std::move(handlers);
  set_options(socket_, limits_);
  hello_timer_.expires_after(limits_.hello);
  hello_timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (!error) self->close(fmt::format("no hello within {}", format_duration(self->limits_.hello)));
  });
  queue(FrameKind::kJson, hello::encode(own_));
  wait_readable();
}

// ---- in ----

void Connection::wait_readable() {
  if (is_closed_) return;
  socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](const boost::system::error_code& error) {
    if (!error) self->read();
  });
}

void Connection::read() {
  for (int turn = 0; turn < kReadsPerTurn && !is_closed_; ++turn) {
    boost::system::error_code error;
    const std::size_t bytes = socket_.read_some(asio::buffer(buffer_), error);
    if (error == asio::error::would_block) break;
    if (error == asio::error::eof) return close("closed by the other side");
    if (error) return close(error.message());
    reader_.append({buffer_.data(), bytes});
    take_frames();
  }
  wait_readable();
}

void Connection::take_frames() {
  while (!is_closed_) {
    Result<std::optional<Frame>> next = reader_.next();
    if (!next) return close(next.error().message);
    if (!next.value()) return;
    if (protocol_ == 0) {
      take_hello(*next.value());
    } else {
      handlers_.on_frame(std::move(*next.value()));
    }
  }
}

void Connection::take_hello(const Frame& frame) {
  if (frame.kind != FrameKind::kJson) return close("the first frame is no hello");
  const Result<hello::Hello> other = hello::decode(frame.bytes);
  if (!other) return close("the first frame is no hello: " + other.error().message);
  const Result<int> agreed = hello::agree(own_, other.value());
  if (!agreed) return close(agreed.error().message);
  protocol_ = agreed.value();
  hello_timer_.cancel();
  handlers_.on_open(protocol_);
}

// ---- out ----

Status Connection::send(FrameKind kind, std::string_view bytes) {
  if (is_closed_) return {};
  SGD_ASSERT(protocol_ != 0);
  const std::size_t limit = kind == FrameKind::kJson ? kJsonFrameBytesMax : kChunkFrameBytesMax;
  if (bytes.size() > limit)
    return Error{fmt::format("a message of {} bytes to {}; a frame takes {}", bytes.size(), peer_, limit)};
  queue(kind, bytes);
  return {};
}

void Connection::queue(FrameKind kind, std::string_view bytes) {
  std::string frame = encode_frame(kind, bytes);
  queued_bytes_ += frame.size();
  queue_.push_back(std::move(frame));
  if (queued_bytes_ > limits_.queue_bytes)
    return close(fmt::format("the other side does not read: {} bytes wait for it", queued_bytes_));
  flush_soon();
}

/// What is sent in one turn of the event loop leaves in one call.
void Connection::flush_soon() {
  if (std::exchange(is_flushing_, true)) return;
  asio::post(socket_.get_executor(), [self = shared_from_this()] { self->flush(); });
}

void Connection::flush() {
  is_flushing_ = false;
  while (!queue_.empty() && !is_closed_) {
    std::vector<asio::const_buffer> buffers;
    for (const std::string& frame : queue_) {
      const std::size_t skip = buffers.empty() ? sent_of_first_ : 0;
      buffers.emplace_back(frame.data() + skip, frame.size() - skip);
      if (buffers.size() == kBuffersPerWrite) break;
    }
    boost::system::error_code error;
    std::size_t sent = socket_.write_some(buffers, error);
    if (error == asio::error::would_block) {
      is_flushing_ = true;
      return socket_.async_wait(tcp::socket::wait_write,
                                [self = shared_from_this()](const boost::system::error_code& failed) {
                                  if (!failed) self->flush();
                                });
    }
    if (error) return close(error.message());
    queued_bytes_ -= sent;
    for (sent += sent_of_first_; !queue_.empty() && sent >= queue_.front().size(); queue_.pop_front())
      sent -= queue_.front().size();
    sent_of_first_ = sent;
  }
}

// ---- the end ----

void Connection::close(std::string reason) {
  if (std::exchange(is_closed_, true)) return;
  close_reason_ = std::move(reason);
  asio::post(socket_.get_executor(), [self = shared_from_this()] { self->finish(); });
}

void Connection::abandon(std::string reason) {
  is_abandoned_ = true;
  close(std::move(reason));
}

void Connection::finish() {
  boost::system::error_code ignored;
  hello_timer_.cancel();
  socket_.close(ignored);
  queue_.clear();
  const Handlers last = std::exchange(handlers_, {});
  if (!is_abandoned_ && last.on_closed) last.on_closed(close_reason_);
}

}  // namespace sgd::net

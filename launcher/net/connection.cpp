#include "launcher/net/connection.hpp"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>

#include "common/base/assert.hpp"
#include "launcher/net/local_peer.hpp"

namespace sgd::net {
namespace {

namespace asio = boost::asio;

constexpr int kReadsPerTurn = 8;                          // Then the others have their turn,
constexpr Duration kTurn = std::chrono::milliseconds(5);  // and when what was read has made so much work.
constexpr std::size_t kPartsPerWrite = 64;
/// Then the others have their turn: hundreds of connections may have something large to send at once. At least what
/// TLS may have to send again.
constexpr std::size_t kBytesPerTurn = 32 << 10;
constexpr Duration kLastWords = std::chrono::seconds(1);

void set_options(Socket& socket, const ConnectionLimits& limits) {
  boost::system::error_code ignored;  // A socket that is gone already is found out by the first read.
  socket.non_blocking(true, ignored);
  if (local_peer(socket.native_handle())) return;
  socket.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket.set_option(asio::socket_base::keep_alive(true), ignored);
  const auto timeout = static_cast<unsigned>(to_seconds(limits.unanswered) * 1e3);
  (void)::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof(timeout));
}

}  // namespace

Connection::Connection(Socket socket, ReadBuffer& buffer, const Security& security, ConnectionLimits limits,
                       hello::Hello own)
    : socket_(std::move(socket)),
      timer_(socket_.get_executor()),
      buffer_(buffer),
      limits_(limits),
      own_(own),
      peer_(peer_name(socket_)),
      stream_(security.tls ? security.tls->make_stream(socket_.native_handle(), security.side)
                           : make_plain_stream(socket_.native_handle())),
      side_(security.side) {
  reader_.limit(limits_.hello_bytes);
}

void Connection::start(Handlers handlers) {
  handlers_ = std::move(handlers);
  set_options(socket_, limits_);
  timer_.expires_after(limits_.hello);
  timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (error) return;
    self->close(fmt::format("no {} within {}", self->has_handshaken_ ? "hello" : "TLS handshake",
                            format_duration(self->limits_.hello)),
                RefusalKind::kSlow);
  });
  handshake();
}

void Connection::again_when(Socket::wait_type ready, void (Connection::*next)()) {
  if (is_closed_) return;
  socket_.async_wait(ready, [self = shared_from_this(), next](const boost::system::error_code& error) {
    if (!error) ((*self).*next)();
  });
}

void Connection::handshake() {
  if (is_closed_) return;
  IoOutcome outcome = stream_->handshake();
  switch (outcome.state) {
    case IoState::kWouldBlockRead:
      return again_when(Socket::wait_read, &Connection::handshake);
    case IoState::kWouldBlockWrite:
      return again_when(Socket::wait_write, &Connection::handshake);
    case IoState::kEof:
      return close("closed by the other side in the TLS handshake");
    case IoState::kError:
      return close(std::move(outcome.reason), outcome.kind);
    case IoState::kDone:
      break;
  }
  has_handshaken_ = true;
  queue(std::make_shared<const std::string>(encode_frame(FrameKind::kJson, hello::encode(own_))));
  if (!stream_->has_pending()) return again_when(Socket::wait_read, &Connection::read);
  asio::post(socket_.get_executor(), [self = shared_from_this()] { self->read(); });
}

// ---- in ----

void Connection::close_if_revoked() {
  if (!is_closed_ && stream_->is_revoked())
    close(fmt::format("{} is revoked", describe(stream_->peer())), RefusalKind::kRevoked);
}

void Connection::read() {
  close_if_revoked();
  const auto until = std::chrono::steady_clock::now() + kTurn;
  bool has_taken_all = take_frames(until);  // Of the turn before.
  for (int turn = 0; turn < kReadsPerTurn && may_read() && has_taken_all; ++turn) {
    IoOutcome outcome = stream_->read(buffer_);
    switch (outcome.state) {
      case IoState::kWouldBlockRead:
        return again_when(Socket::wait_read, &Connection::read);
      case IoState::kWouldBlockWrite:
        return again_when(Socket::wait_write, &Connection::read);
      case IoState::kEof:
        return close("closed by the other side");
      case IoState::kError:
        return close(std::move(outcome.reason), outcome.kind);
      case IoState::kDone:
        break;
    }
    reader_.append({buffer_.data(), outcome.bytes});
    has_taken_all = take_frames(until);
  }
  is_halted_ = !may_read();
  if (is_halted_) return;
  if (has_taken_all && !stream_->has_pending()) return again_when(Socket::wait_read, &Connection::read);
  asio::post(socket_.get_executor(), [self = shared_from_this()] { self->read(); });
}

void Connection::rest(Duration duration) {
  rest_until(std::chrono::steady_clock::now() + duration);
}

void Connection::pause() {
  rest_until(std::chrono::steady_clock::time_point::max());
}

void Connection::rest_until(std::chrono::steady_clock::time_point end) {
  if (is_closed_ || rest_) return;
  rest_ = std::make_unique<asio::steady_timer>(socket_.get_executor(), end);
  rest_->async_wait([self = shared_from_this()](const boost::system::error_code&) {
    if (self->is_closed_) return;
    self->rest_.reset();
    self->read_on();
  });
}

void Connection::go_on() {
  if (rest_) rest_->cancel();
}

void Connection::read_on() {
  if (may_read() && std::exchange(is_halted_, false)) read();
}

/// False when time is up: thousands of small frames may have come in one read.
bool Connection::take_frames(std::chrono::steady_clock::time_point until) {
  while (may_read()) {
    Result<std::optional<Frame>> next = reader_.next();
    if (!next) {
      close(next.error().message, next.error().code == EMSGSIZE ? RefusalKind::kOversize : RefusalKind::kBadFrame);
      return true;
    }
    if (!next.value()) return true;
    if (protocol_ == 0) {
      take_hello(*next.value());
    } else {
      handlers_.on_frame(std::move(*next.value()));
    }
    if (std::chrono::steady_clock::now() >= until) return false;
  }
  return true;
}

void Connection::take_hello(const Frame& frame) {
  if (frame.kind != FrameKind::kJson) return close("the first frame is no hello", RefusalKind::kProtocol);
  const Result<hello::Hello> other = hello::decode(frame.bytes);
  if (!other) return close("the first frame is no hello: " + other.error().message, RefusalKind::kProtocol);
  const Result<int> agreed = hello::agree(own_, other.value());
  if (!agreed) return close(agreed.error().message, RefusalKind::kProtocol);
  protocol_ = agreed.value();
  const bool is_stranger = stream_->is_secure() && stream_->peer().role == Role::kNone;
  reader_.limit(is_stranger ? limits_.stranger_bytes : kChunkFrameBytesMax);
  if (side_ == TlsSide::kDials) reader_.take_long_messages();
  timer_.cancel();
  close_at_expiry();
  handlers_.on_open(protocol_);
}

/// A certificate lets its owner in until it expires, not for as long as a connection happens to hold.
void Connection::close_at_expiry() {
  if (stream_->peer().role == Role::kNone) return;
  const auto expires = std::chrono::system_clock::time_point(std::chrono::seconds(stream_->peer().expires_s));
  timer_.expires_after(std::chrono::duration_cast<Duration>(expires - std::chrono::system_clock::now()));
  timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (!error) self->close("the certificate of the other side has expired", RefusalKind::kExpired);
  });
}

// ---- out ----

Status Connection::send(FrameKind kind, std::string_view bytes) {
  if (is_closed_) return {};
  SGD_ASSERT(protocol_ != 0);
  const std::size_t json_max = side_ == TlsSide::kAccepts ? kMessageBytesMax : kJsonFrameBytesMax;
  const std::size_t limit = kind == FrameKind::kJson ? json_max : kChunkFrameBytesMax;
  if (bytes.size() > limit)
    return Error{fmt::format("a message of {} bytes to {}; it takes {}", bytes.size(), peer_, limit)};
  if (kind != FrameKind::kJson) {
    queue(std::make_shared<const std::string>(encode_frame(kind, bytes)));
  } else {
    for (std::string& frame : encode_message(bytes)) queue(std::make_shared<const std::string>(std::move(frame)));
  }
  return {};
}

void Connection::send(std::shared_ptr<const std::string> frames) {
  SGD_ASSERT(is_closed_ || protocol_ != 0);
  queue(std::move(frames));
}

void Connection::queue(std::shared_ptr<const std::string> frames) {
  if (is_closed_) return;
  queued_bytes_ += frames->size();
  queue_.push_back(std::move(frames));
  if (queued_bytes_ > limits_.queue_bytes)
    return close(fmt::format("the other side does not read: {} bytes wait for it", queued_bytes_), RefusalKind::kSlow);
  flush_soon();
}

/// What is sent in one turn of the event loop leaves in one call.
void Connection::flush_soon() {
  if (std::exchange(is_flushing_, true)) return;
  asio::post(socket_.get_executor(), [self = shared_from_this()] { self->flush(); });
}

void Connection::flush() {
  is_flushing_ = false;
  std::size_t written = 0;
  while (!queue_.empty() && !is_closed_) {
    if (written >= kBytesPerTurn) return flush_soon();
    std::array<std::string_view, kPartsPerWrite> parts;
    std::size_t count = 0;
    std::size_t bytes = 0;
    for (auto frame = queue_.begin(); frame != queue_.end() && count < parts.size() && bytes < kBytesPerTurn; ++frame) {
      const std::size_t sent = count == 0 ? sent_of_first_ : 0;
      parts[count] = std::string_view(**frame).substr(sent, kBytesPerTurn - bytes);
      bytes += parts[count++].size();
    }
    IoOutcome outcome = stream_->write({parts.data(), count});
    switch (outcome.state) {
      case IoState::kWouldBlockRead:
        is_flushing_ = true;
        return again_when(Socket::wait_read, &Connection::flush);
      case IoState::kWouldBlockWrite:
        is_flushing_ = true;
        return again_when(Socket::wait_write, &Connection::flush);
      case IoState::kEof:
        return close("closed by the other side");
      case IoState::kError:
        return close(std::move(outcome.reason), outcome.kind);
      case IoState::kDone:
        break;
    }
    written += outcome.bytes;
    queued_bytes_ -= outcome.bytes;
    std::size_t sent = outcome.bytes + sent_of_first_;
    for (; !queue_.empty() && sent >= queue_.front()->size(); queue_.pop_front()) sent -= queue_.front()->size();
    sent_of_first_ = sent;
  }
}

// ---- the end ----

void Connection::close(std::string reason, RefusalKind kind) {
  if (std::exchange(is_closed_, true)) return;
  refusal_ = kind;
  close_reason_ = std::move(reason);
  asio::post(socket_.get_executor(), [self = shared_from_this()] { self->finish(); });
}

void Connection::abandon(std::string reason) {
  is_abandoned_ = true;
  close(std::move(reason));
}

void Connection::finish() {
  boost::system::error_code ignored;
  timer_.cancel();
  if (rest_) rest_->cancel();
  stream_->send_close_notify();
  if (refusal_ == RefusalKind::kRevoked) socket_.set_option(asio::socket_base::linger(true, 0), ignored);
  if (stream_->has_last_words())
    linger();
  else
    socket_.close(ignored);
  queue_.clear();
  const Handlers last = std::exchange(handlers_, {});
  if (!is_abandoned_ && last.on_closed) last.on_closed(close_reason_);
}

/// A socket that is closed while bytes of the peer are unread takes the alert with it that tells the peer why.
void Connection::linger() {
  boost::system::error_code ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
  timer_.expires_after(kLastWords);
  timer_.async_wait([self = shared_from_this()](const boost::system::error_code&) {
    boost::system::error_code unused;
    self->socket_.close(unused);
  });
  drain();
}

void Connection::drain() {
  boost::system::error_code error;
  for (int turn = 0; turn < kReadsPerTurn && !error; ++turn) (void)socket_.read_some(asio::buffer(buffer_), error);
  if (error && error != asio::error::would_block) return (void)timer_.cancel();
  socket_.async_wait(Socket::wait_read, [self = shared_from_this()](const boost::system::error_code& ended) {
    if (!ended) self->drain();
  });
}

}  // namespace sgd::net

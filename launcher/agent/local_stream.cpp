#include "launcher/agent/local_stream.hpp"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <span>
#include <utility>
#include <vector>

#include <boost/asio/post.hpp>

#include "launcher/process/foreign_fds.hpp"
#include "launcher/process/unix_socket.hpp"

namespace sgd::agent {
namespace {

constexpr std::size_t kReadBytes = 256 << 10;
constexpr int kReadsPerTurn = 8;  // Then the others have their turn.

/// One for all streams of an event loop, whose owners take what is read before they return: hundreds of quiet links
/// would hold a buffer each.
std::span<char> read_buffer() {
  thread_local std::vector<char> buffer(kReadBytes);
  return buffer;
}

}  // namespace

LocalStream::LocalStream(boost::asio::io_context& io, process::UniqueFd socket) : io_(io), socket_(io) {
  SGD_ASSERT(process::set_nonblocking(socket.get()));
  socket_.assign(socket.release());
}

void LocalStream::start(OnBytes on_bytes, OnClosed on_closed) {
  on_bytes_ = std::move(on_bytes);
  on_closed_ = std::move(on_closed);
  wait_readable();
}

void LocalStream::wait_readable() {
  if (closed_ || is_paused_ || std::exchange(read_waiting_, true)) return;
  socket_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                     [self = shared_from_this()](const boost::system::error_code& error) {
                       self->read_waiting_ = false;
                       if (!error) self->read();
                     });
}

void LocalStream::resume() {
  is_paused_ = false;
  if (on_bytes_) wait_readable();
}

bool LocalStream::has_peer_left() {
  pollfd look{socket_.native_handle(), POLLRDHUP, 0};
  return ::poll(&look, 1, 0) == 1 && (look.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

void LocalStream::read() {
  const std::span<char> buffer = read_buffer();
  for (int turn = 0; turn < kReadsPerTurn && !closed_ && !is_paused_; ++turn) {
    auto received = process::receive_with_descriptors(socket_.native_handle(), buffer);
    if (!received) {
      if (received.error().code == EAGAIN || received.error().code == EWOULDBLOCK) break;
      return close(received.error().message);
    }
    if (received.value().bytes == 0) return close("closed by the other end");
    if (received.value().truncated) {
      process::close_aside(std::move(received.value().descriptors));
      return close("it sent descriptors for which there was no room: too many, or too many files are open here");
    }
    on_bytes_(std::string_view(buffer.data(), received.value().bytes), std::move(received.value().descriptors));
  }
  wait_readable();
}

void LocalStream::send(std::string bytes, std::vector<process::SharedFd> descriptors) {
  if (closed_) return;
  Outgoing outgoing;
  outgoing.bytes = std::move(bytes);
  outgoing.descriptors = std::move(descriptors);
  queued_bytes_ += outgoing.bytes.size();
  queue_.push_back(std::move(outgoing));
  if (queued_bytes_ > kQueueBytesMax) return close("the other end does not read");
  if (!write_waiting_) flush();
}

void LocalStream::flush() {
  while (!queue_.empty() && !closed_) {
    Outgoing& next = queue_.front();
    std::vector<int> descriptors;
    for (const process::SharedFd& fd : next.descriptors) descriptors.push_back(fd->get());
    const auto sent = process::send_with_descriptors(socket_.native_handle(),
                                                     std::string_view(next.bytes).substr(next.sent), descriptors);
    if (!sent) {
      if (sent.error().code != EAGAIN && sent.error().code != EWOULDBLOCK) return;  // The reader reports the end.
      write_waiting_ = true;
      socket_.async_wait(boost::asio::posix::stream_descriptor::wait_write,
                         [self = shared_from_this()](const boost::system::error_code& error) {
                           self->write_waiting_ = false;
                           if (!error) self->flush();
                         });
      return;
    }
    if (sent.value() > 0) next.descriptors.clear();
    next.sent += sent.value();
    queued_bytes_ -= sent.value();
    if (next.sent == next.bytes.size()) queue_.pop_front();
  }
}

void LocalStream::close(std::string reason) {
  if (closed_) return;
  closed_ = true;
  close_reason_ = std::move(reason);
  queue_.clear();
  queued_bytes_ = 0;
  boost::asio::post(io_, [self = shared_from_this()] { self->finish(); });
}

void LocalStream::finish() {
  process::discard(process::UniqueFd(socket_.release()));
  const OnClosed on_closed = std::exchange(on_closed_, nullptr);
  on_bytes_ = nullptr;
  if (on_closed) on_closed(close_reason_);
}

}  // namespace sgd::agent

#pragma once
// A Unix stream on the event loop that can carry descriptors: what the keeper's socket and the
// ranks' links have in common. Reads when there is something, writes from a bounded queue,
// reports the end once. Meaning and framing are the owner's.

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "common/base/result.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::agent {

class LocalStream : public std::enable_shared_from_this<LocalStream> {
 public:
  /// Bytes that the peer has not taken yet; beyond it the peer is not reading and the stream ends.
  static constexpr std::size_t kQueueBytesMax = 8 << 20;

  using OnBytes = std::function<void(std::string_view bytes, std::vector<process::UniqueFd> descriptors)>;
  using OnClosed = std::function<void(std::string reason)>;

  LocalStream(boost::asio::io_context& io, process::UniqueFd socket);

  /// Starts reading. `on_closed` is called once, last, never inside start() or send().
  void start(OnBytes on_bytes, OnClosed on_closed);
  /// `descriptors` travel with the first byte.
  void send(std::string bytes, std::vector<process::SharedFd> descriptors = {});
  /// Nothing is read from here on, so that the peer has to wait, and its end is not seen; until resume().
  void pause() { is_paused_ = true; }
  void resume();
  /// The other end is closed, and nothing comes any more but what the kernel holds.
  [[nodiscard]] bool has_peer_left();
  /// Ends the stream; on_closed follows with `reason`.
  void close(std::string reason);

 private:
  struct Outgoing {
    std::string bytes;
    std::size_t sent = 0;
    std::vector<process::SharedFd> descriptors;
  };

  void wait_readable();
  void read();
  void flush();
  void finish();

  boost::asio::io_context& io_;
  boost::asio::posix::stream_descriptor socket_;
  OnBytes on_bytes_;
  OnClosed on_closed_;
  std::deque<Outgoing> queue_;
  std::size_t queued_bytes_ = 0;
  std::string close_reason_;
  bool is_paused_ = false;
  bool read_waiting_ = false;
  bool write_waiting_ = false;
  bool closed_ = false;
};

}  // namespace sgd::agent

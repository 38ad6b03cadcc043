#pragma once
// One connection between two of our daemons, over TCP or a Unix socket, in plain text or TLS: whole frames in both
// directions, after both have said which protocol they speak. Bytes are read into a buffer that all connections of an
// event loop share, so that thousands of quiet ones cost little; what the peer does not take waits in a queue with a
// limit.
//
//   start() -> TLS handshake -> both hellos -> on_open -> on_frame ... -> on_closed, once and last
//
// Whatever the peer does wrong ends this connection and nothing else, with a reason.

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <boost/asio/steady_timer.hpp>

#include "common/base/result.hpp"
#include "common/base/time.hpp"
#include "common/messages/frame.hpp"
#include "common/messages/hello.hpp"
#include "launcher/net/address.hpp"
#include "launcher/net/peer_identity.hpp"
#include "launcher/net/refusal.hpp"
#include "launcher/net/socket.hpp"
#include "launcher/net/stream.hpp"
#include "launcher/net/tls_context.hpp"

namespace sgd::net {

/// Bytes on their way from a socket to a frame; one for all connections of an event loop.
using ReadBuffer = std::array<char, 64 << 10>;

struct ConnectionLimits {
  std::size_t queue_bytes = 16 << 20;        ///< Sent, and not taken by the peer.
  std::size_t hello_bytes = 4 << 10;         ///< Of the first frame.
  std::size_t stranger_bytes = 16 << 10;     ///< Of any frame of a peer without certificate where TLS is spoken.
  Duration hello = std::chrono::seconds(5);  ///< From start() to the peer's hello, TLS handshake included.
  Duration unanswered =
      std::chrono::seconds(5);  ///< TCP_USER_TIMEOUT: sent, and not acknowledged by the peer's kernel.
};

/// How a connection is protected: by nothing without a context.
struct Security {
  std::shared_ptr<const TlsContext> tls;
  TlsSide side = TlsSide::kAccepts;
};

/// Of whoever dials `to`: over a Unix socket the kernel says who is there, and no TLS is spoken.
[[nodiscard]] inline Security dialling(const Address& to, std::shared_ptr<const TlsContext> tls) {
  return {to.is_local_socket() ? nullptr : std::move(tls), TlsSide::kDials};
}

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  struct Handlers {
    std::function<void(int protocol)> on_open;
    std::function<void(Frame frame)> on_frame;
    std::function<void(const std::string& reason)> on_closed;
  };

  /// `buffer` must outlive the connection. `own` is what this side speaks.
  Connection(Socket socket, ReadBuffer& buffer, const Security& security = {}, ConnectionLimits limits = {},
             hello::Hello own = {});

  /// Handlers are never called inside start(), send() or close(), and are let go after on_closed.
  void start(Handlers handlers);
  /// Before on_open nothing may be sent. Error: `bytes` is more than the peer takes; the connection goes on. Who has
  /// dialed takes JSON texts of kMessageBytesMax, in parts; who has accepted, what one frame has.
  Status send(FrameKind kind, std::string_view bytes);
  /// Whole frames, each as large as the peer takes, which other connections may send, too.
  void send(std::shared_ptr<const std::string> frames);
  /// on_closed follows with `reason`; what waits to be sent is dropped.
  void close(std::string reason, RefusalKind kind = RefusalKind::kNone);
  /// Nothing of the peer is read, and no frame taken, for so long: it is told by its full socket. While it rests, a
  /// further rest changes nothing.
  void rest(Duration duration);
  /// The same until go_on().
  void pause();
  /// Ends a rest or a pause.
  void go_on();
  /// The same as close() without on_closed: from here on no handler is called.
  void abandon(std::string reason);
  /// Closed, if the other side's certificate was revoked since it was shown; what waits to be sent is dropped, also
  /// what the kernel holds of it.
  void close_if_revoked();

  /// As local_ip() says it.
  [[nodiscard]] std::string local_address() const { return local_ip(socket_); }
  /// As peer_name() says it.
  [[nodiscard]] const std::string& peer() const { return peer_; }
  /// Who the peer has proved to be, from on_open on; kNone without TLS, and for a peer without certificate. Over a Unix
  /// socket its account, in `uid` and `name`.
  [[nodiscard]] const PeerIdentity& peer_identity() const { return stream_->peer(); }
  /// Whether it is TLS that carries this connection.
  [[nodiscard]] bool is_secure() const { return stream_->is_secure(); }
  /// What the peer has done wrong, when it is closed.
  [[nodiscard]] RefusalKind refusal() const { return refusal_; }
  /// Bytes that were sent and that the kernel has not taken.
  [[nodiscard]] std::size_t unsent() const { return queued_bytes_; }
  [[nodiscard]] bool is_open() const { return protocol_ != 0 && !is_closed_; }

 private:
  void again_when(Socket::wait_type ready, void (Connection::*next)());
  void handshake();
  void read();
  void rest_until(std::chrono::steady_clock::time_point end);
  void read_on();
  [[nodiscard]] bool may_read() const { return !is_closed_ && !rest_; }
  [[nodiscard]] bool take_frames(std::chrono::steady_clock::time_point until);
  void take_hello(const Frame& frame);
  void queue(std::shared_ptr<const std::string> frames);
  void flush_soon();
  void flush();
  void close_at_expiry();
  void finish();
  void linger();
  void drain();

  Socket socket_;
  boost::asio::steady_timer timer_;  ///< For the hello, then for the end of the peer's certificate, then last words.
  std::unique_ptr<boost::asio::steady_timer> rest_;  ///< While it lasts.
  ReadBuffer& buffer_;
  ConnectionLimits limits_;
  hello::Hello own_;
  std::string peer_;
  std::unique_ptr<Stream> stream_;
  TlsSide side_;
  Handlers handlers_;
  FrameReader reader_;
  std::deque<std::shared_ptr<const std::string>> queue_;
  std::size_t queued_bytes_ = 0;
  std::size_t sent_of_first_ = 0;
  int protocol_ = 0;  ///< 0: the peer's hello has not come.
  bool has_handshaken_ = false;
  bool is_flushing_ = false;
  bool is_halted_ = false;  ///< Reading has ended for a rest, and has to be taken up again.
  bool is_closed_ = false;
  bool is_abandoned_ = false;
  std::string close_reason_;
  RefusalKind refusal_ = RefusalKind::kNone;
};

}  // namespace sgd::net

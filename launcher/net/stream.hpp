#pragma once
// Bytes over one connected, non-blocking socket, as plain text or through TLS: what a Connection reads and
// writes. Nothing here waits: an operation that cannot go on says for what, and is called again when that has
// come. The socket belongs to the caller, who keeps it open as long as the stream.

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "launcher/net/peer_identity.hpp"
#include "launcher/net/refusal.hpp"

namespace sgd::net {

enum class IoState {
  kDone,             ///< `bytes` were read or written, at least one; or the handshake is over.
  kWouldBlockRead,   ///< Again when the socket is readable.
  kWouldBlockWrite,  ///< Again when it is writable.
  kEof,              ///< The other side has closed.
  kError,            ///< `reason` says why; the stream is of no more use.
};

struct IoOutcome {
  IoState state = IoState::kDone;
  std::size_t bytes = 0;
  std::string reason;
  RefusalKind kind = RefusalKind::kNone;  ///< Of an error that is the other side's fault.
};

class Stream {
 public:
  virtual ~Stream() = default;
  /// Before anything is read or written.
  [[nodiscard]] virtual IoOutcome handshake() = 0;
  [[nodiscard]] virtual IoOutcome read(std::span<char> into) = 0;
  /// Some of `parts`, from the first on. After kWouldBlock the next call begins with the same bytes.
  [[nodiscard]] virtual IoOutcome write(std::span<const std::string_view> parts) = 0;
  /// read() has bytes although the socket may have none.
  [[nodiscard]] virtual bool has_pending() const = 0;
  /// Says to the other side that nothing follows, if that is possible at once.
  virtual void send_close_notify() = 0;
  /// What was said last may still be on its way, and the other side's bytes unread: closing the socket now
  /// would lose it.
  [[nodiscard]] virtual bool has_last_words() const = 0;

  /// Whether TLS protects it; without, only the kernel knows who the peer is, and only over a Unix socket.
  [[nodiscard]] virtual bool is_secure() const = 0;
  /// From the end of the handshake on.
  [[nodiscard]] virtual const PeerIdentity& peer() const = 0;
  /// Whether the peer's certificate was revoked since the handshake; looked up about once a second.
  [[nodiscard]] virtual bool is_revoked() = 0;
};

/// Plain text over `fd`, a socket. It tells a peer that speaks TLS as such.
[[nodiscard]] std::unique_ptr<Stream> make_plain_stream(int fd);

}  // namespace sgd::net

#include "launcher/net/tls_stream.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <openssl/err.h>

#include "launcher/net/socket_bio.hpp"
#include "launcher/net/tls_verify.hpp"
#include "launcher/net/tls_words.hpp"
#include "launcher/net/x509_identity.hpp"

namespace sgd::net {
namespace {

constexpr std::size_t kRecordBytes = 16 << 10;
constexpr std::array<unsigned char, 2> kTlsFirstBytes{0x15, 0x16};  // Of an alert, of a handshake.
constexpr std::array<unsigned char, 7> kAlertProtocolVersion{0x15, 3, 3, 0, 2, 2, 70};

class TlsStream : public Stream {
 public:
  TlsStream(std::shared_ptr<const TlsContext> context, SslPtr ssl, int fd, TlsSide side, const Digest* pinned_ca_key)
      : context_(std::move(context)), socket_{fd}, ssl_(std::move(ssl)) {
    check_.context = context_.get();
    check_.side = side;
    check_.pinned_ca_key = pinned_ca_key;
    SSL_set_app_data(ssl_.get(), &check_);
    BIO* bio = make_socket_bio(socket_);
    SSL_set_bio(ssl_.get(), bio, bio);
    if (side == TlsSide::kAccepts)
      SSL_set_accept_state(ssl_.get());
    else
      SSL_set_connect_state(ssl_.get());
  }

  IoOutcome handshake() override {
    if (!has_heard_tls_) {
      const IoOutcome heard = look_at_first_byte();
      const bool must_wait = heard.state == IoState::kWouldBlockRead && check_.side == TlsSide::kAccepts;
      if (heard.state == IoState::kError || must_wait) return heard;
    }
    ERR_clear_error();
    const int result = SSL_do_handshake(ssl_.get());
    if (result != 1) return outcome_of(result);
    is_open_ = true;
    return {};
  }

  IoOutcome read(std::span<char> into) override {
    ERR_clear_error();
    std::size_t bytes = 0;
    const int result = SSL_read_ex(ssl_.get(), into.data(), into.size(), &bytes);
    return result == 1 ? IoOutcome{IoState::kDone, bytes, {}} : outcome_of(result);
  }

  IoOutcome write(std::span<const std::string_view> parts) override {
    SGD_ASSERT(!parts.empty());
    // Small messages share a record: each costs 22 bytes and a call. A retry has the same bytes in front, as
    // OpenSSL asks.
    std::array<char, kRecordBytes> record;
    std::string_view bytes = parts.front();
    if (bytes.size() < record.size() && parts.size() > 1) {
      std::size_t filled = 0;
      for (const std::string_view part : parts) {
        const std::size_t taken = std::min(part.size(), record.size() - filled);
        std::memcpy(record.data() + filled, part.data(), taken);
        filled += taken;
      }
      bytes = {record.data(), filled};
    }
    ERR_clear_error();
    std::size_t sent = 0;
    const int result = SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &sent);
    return result == 1 ? IoOutcome{IoState::kDone, sent, {}} : outcome_of(result);
  }

  bool has_pending() const override { return SSL_has_pending(ssl_.get()) == 1; }
  void send_close_notify() override {
    if (!is_open_ || has_failed_) return;
    ERR_clear_error();
    (void)SSL_shutdown(ssl_.get());  // Ignoring: it is a courtesy, frames say themselves whether they are whole.
    ERR_clear_error();
  }
  bool has_last_words() const override { return has_failed_ && !socket_.is_eof && socket_.error == 0; }
  bool is_secure() const override { return true; }
  const PeerIdentity& peer() const override { return is_open_ ? check_.found : nobody_; }
  bool is_revoked() override {
    context_->refresh_soon();
    return check_.found.role != Role::kNone && context_->is_revoked(check_.found);
  }

 private:
  /// Whoever speaks plain text is told apart, and told so by an alert that our plain text side knows.
  IoOutcome look_at_first_byte() {
    unsigned char first = 0;
    const ssize_t count = ::recv(socket_.fd, &first, 1, MSG_PEEK);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return {IoState::kWouldBlockRead, 0, {}};
    if (count <= 0) return {};  // OpenSSL finds the same.
    has_heard_tls_ = std::find(kTlsFirstBytes.begin(), kTlsFirstBytes.end(), first) != kTlsFirstBytes.end();
    if (has_heard_tls_) return {};
    has_failed_ = true;
    if (check_.side == TlsSide::kDials)
      return {IoState::kError, 0,
              "the other side speaks plain text, and this side TLS: it has no identity (sgd-launch init there)"};
    (void)::send(socket_.fd, kAlertProtocolVersion.data(), kAlertProtocolVersion.size(), MSG_NOSIGNAL);
    return {IoState::kError, 0, "the other side does not speak TLS, without which nobody is let in here",
            RefusalKind::kPlainText};
  }

  IoOutcome outcome_of(int result) {
    const int error = SSL_get_error(ssl_.get(), result);
    if (error == SSL_ERROR_WANT_READ) return {IoState::kWouldBlockRead, 0, {}};
    if (error == SSL_ERROR_WANT_WRITE) return {IoState::kWouldBlockWrite, 0, {}};
    if (error == SSL_ERROR_ZERO_RETURN || socket_.is_eof) return {IoState::kEof, 0, {}};
    has_failed_ = true;
    if (socket_.error != 0) return {IoState::kError, 0, std::strerror(socket_.error)};
    if (!check_.refusal.empty()) return {IoState::kError, 0, check_.refusal, check_.kind};
    return {IoState::kError, 0, tls_error_in_words(ERR_get_error(), own()), RefusalKind::kHandshake};
  }

  /// As this connection shows it: the context may have taken up a newer one since.
  PeerIdentity own() const {
    X509* certificate = SSL_get_certificate(ssl_.get());
    const Result<PeerIdentity> identity = certificate == nullptr ? PeerIdentity() : identity_of(certificate);
    return identity ? identity.value() : PeerIdentity();
  }

  std::shared_ptr<const TlsContext> context_;
  SocketState socket_;
  PeerCheck check_;
  SslPtr ssl_;
  PeerIdentity nobody_;
  bool has_heard_tls_ = false;
  bool is_open_ = false;
  bool has_failed_ = false;
};

}  // namespace

std::unique_ptr<Stream> make_tls_stream(std::shared_ptr<const TlsContext> context, SslPtr ssl, int fd, TlsSide side,
                                        const Digest* pinned_ca_key) {
  return std::make_unique<TlsStream>(std::move(context), std::move(ssl), fd, side, pinned_ca_key);
}

}  // namespace sgd::net

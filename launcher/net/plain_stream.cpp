#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "launcher/net/local_peer.hpp"
#include "launcher/net/stream.hpp"
#include "launcher/net/tls_words.hpp"

namespace sgd::net {
namespace {

constexpr std::size_t kPartsPerCall = 64;
// The first byte of a TLS record; of ours it is the highest of a length, and 0.
constexpr char kTlsAlert = 0x15;
constexpr char kTlsHandshake = 0x16;

IoOutcome failure(IoState when_blocked) {
  if (errno == EAGAIN || errno == EWOULDBLOCK) return {when_blocked, 0, {}};
  return {IoState::kError, 0, std::strerror(errno)};
}

class PlainStream : public Stream {
 public:
  explicit PlainStream(int fd) : fd_(fd) {
    if (const std::optional<LocalPeer> local = local_peer(fd)) {
      peer_.name = local->account;
      peer_.uid = local->uid;
    }
  }

  IoOutcome handshake() override { return {}; }
  IoOutcome read(std::span<char> into) override {
    ssize_t count = 0;
    do count = ::recv(fd_, into.data(), into.size(), 0);
    while (count < 0 && errno == EINTR);
    if (count < 0) return failure(IoState::kWouldBlockRead);
    if (count == 0) return {IoState::kEof, 0, {}};
    if (is_first_) {
      is_first_ = false;
      if (into[0] == kTlsAlert) return {IoState::kError, 0, kWantsIdentity};
      if (into[0] == kTlsHandshake)
        return {IoState::kError, 0,
                "the other side speaks TLS and this side plain text: this side has no identity (sgd-launch "
                "init)"};
    }
    return {IoState::kDone, static_cast<std::size_t>(count), {}};
  }
  IoOutcome write(std::span<const std::string_view> parts) override {
    std::array<iovec, kPartsPerCall> pieces;
    const std::size_t count = std::min(parts.size(), pieces.size());
    for (std::size_t index = 0; index < count; ++index)
      pieces[index] = {const_cast<char*>(parts[index].data()), parts[index].size()};
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    ssize_t sent = 0;
    do sent = ::sendmsg(fd_, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent < 0) return failure(IoState::kWouldBlockWrite);
    return {IoState::kDone, static_cast<std::size_t>(sent), {}};
  }
  bool has_pending() const override { return false; }
  void send_close_notify() override {}
  bool has_last_words() const override { return false; }
  bool is_secure() const override { return false; }
  const PeerIdentity& peer() const override { return peer_; }
  bool is_revoked() override { return false; }

 private:
  int fd_;
  bool is_first_ = true;
  PeerIdentity peer_;
};

}  // namespace

std::unique_ptr<Stream> make_plain_stream(int fd) {
  return std::make_unique<PlainStream>(fd);
}

}  // namespace sgd::net

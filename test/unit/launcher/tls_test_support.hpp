#pragma once
// A cluster's authority and identities in a folder of its own, and peers on real sockets that send whatever a
// test likes, in plain text or TLS.

#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "launcher/net/ca.hpp"
#include "launcher/net/connection.hpp"
#include "launcher/net/tls_context.hpp"
#include "test/unit/common/temporary_folder.hpp"

namespace sgd::test {

[[nodiscard]] std::int64_t unix_now_s();

/// The bytes of a frame with a JSON text, and of the one that begins a connection.
[[nodiscard]] std::string json_frame(const std::string& text);
[[nodiscard]] std::string own_hello();

/// One cluster: its authority, and a folder for each identity that a test asks for.
struct Cluster {
  TemporaryFolder folder;
  net::CertificateAuthority ca = net::CertificateAuthority::create(unix_now_s());

  struct Validity {
    std::int64_t from_now_s = 0;
    std::int64_t valid_s = 3600;
  };
  /// Makes an identity, and returns its folder.
  [[nodiscard]] std::string identity(net::Role role, const std::string& name, bool is_admin = false);
  [[nodiscard]] std::string identity(net::Role role, const std::string& name, bool is_admin, Validity validity);
  [[nodiscard]] std::shared_ptr<const net::TlsContext> context(net::Role role, const std::string& name,
                                                               bool is_admin = false);

 private:
  int made_ = 0;
};

/// One cluster for all tests that need no other: making one costs some milliseconds under sanitizers.
[[nodiscard]] Cluster& shared_cluster();

/// A dialled socket whose stream a test drives by hand, while it runs the event loop of the other side.
class RawPeer {
 public:
  /// `tls` null: plain text. `turn` lets the other side work for a moment.
  RawPeer(boost::asio::io_context& io, int port, const std::shared_ptr<const net::TlsContext>& tls,
          std::function<void()> turn);

  /// Until the handshake is over; the reason if it fails, else empty.
  [[nodiscard]] std::string handshake();
  /// All of it; false when the other side has closed.
  bool write(std::string_view bytes);
  /// What comes until the other side closes: bytes, then the reason of the end.
  [[nodiscard]] std::string read_until_end();
  [[nodiscard]] const std::string& end_reason() const { return end_; }
  void close();

 private:
  boost::asio::ip::tcp::socket socket_;
  std::unique_ptr<net::Stream> stream_;
  std::function<void()> turn_;
  std::string end_;
};

}  // namespace sgd::test

#pragma once
// TLS as our daemons speak it: version 1.3 alone, certificates of the cluster's own authority on both sides,
// no tickets, no sessions to resume, little memory. Made from an identity folder; when its files change (a
// renewed certificate, somebody revoked) connections that begin later use the new ones, without a restart.
//
// For one thread, as the event loop that its connections belong to.

#include <cstdint>
#include <memory>
#include <string>

#include "common/base/result.hpp"
#include "common/base/time.hpp"
#include "launcher/net/digest.hpp"
#include "launcher/net/peer_identity.hpp"
#include "launcher/net/stream.hpp"

namespace sgd::net {

enum class TlsSide {
  kAccepts,  ///< Takes agents and clients, and strangers without a certificate, who may ask to join.
  kDials,    ///< Takes a coordinator of the same authority, and nobody else.
};

class TlsContext : public std::enable_shared_from_this<TlsContext> {
 public:
  /// Changed files are looked for so often while connections are used; a new connection always looks.
  static constexpr Duration kLook = std::chrono::seconds(1);

  /// Errors: no identity there (code ENOENT), or one that is damaged.
  [[nodiscard]] static Result<std::shared_ptr<const TlsContext>> load(const std::string& identity_folder);
  /// For somebody who has a join token and no certificate yet: takes a coordinator whose authority has the
  /// public key with this digest.
  [[nodiscard]] static std::shared_ptr<const TlsContext> for_joining(const Digest& ca_key);

  /// A stream over a connected, non-blocking socket.
  [[nodiscard]] std::unique_ptr<Stream> make_stream(int fd, TlsSide side) const;

  /// Of this side; kNone when joining.
  [[nodiscard]] const PeerIdentity& own() const;
  [[nodiscard]] bool is_revoked(const PeerIdentity& identity) const;
  /// Reads the folder again if its files have changed. Error: they are damaged; those from before stay in
  /// force.
  Status refresh() const;
  /// The same at most once in kLook; what fails is found again by refresh().
  void refresh_soon() const;
  /// Another one whenever the files were read again.
  [[nodiscard]] std::uint64_t version() const { return version_; }

  ~TlsContext();

 private:
  struct Files;
  explicit TlsContext(std::string folder);

  std::string folder_;  ///< Empty when joining.
  std::shared_ptr<const Digest> pinned_ca_key_;
  // What was last read: a cache, which is why a const context may renew it.
  mutable std::shared_ptr<const Files> files_;
  mutable TimePoint looked_at_{};
  mutable std::uint64_t version_ = 0;
};

}  // namespace sgd::net

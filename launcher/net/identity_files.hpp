#pragma once
// An identity folder: what a daemon or a person needs to be somebody in a cluster. One file holds certificate
// and key, so that both change in one moment when they are renewed.
//
//   identity.pem   certificate and private key, 0600
//   ca.pem         the certificate of the cluster's authority
//   revoked.json   of a coordinator: whom it no longer lets in

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "launcher/net/peer_identity.hpp"

namespace sgd::net {

struct IdentityFiles {
  std::string certificate;
  std::string key;
  std::string ca;
};

[[nodiscard]] std::string identity_file(const std::string& folder);
[[nodiscard]] std::string ca_file(const std::string& folder);
[[nodiscard]] std::string revoked_file(const std::string& folder);

/// Errors: absent (code ENOENT), readable by others, damaged, key and certificate and CA don't belong
/// together.
[[nodiscard]] Result<IdentityFiles> load_identity(const std::string& folder);
/// Creates the folder. An older identity is replaced in one moment; an identity of another CA is not, that is
/// an error.
[[nodiscard]] Status save_identity(const std::string& folder, const IdentityFiles& files);

/// One entry of revoked.json: a certificate by its serial, or all that were made for a name until `at_s`.
struct Revocation {
  std::string serial;     ///< Or empty.
  std::string name;       ///< Or empty; of agents and clients alike.
  std::int64_t at_s = 0;  ///< Unix time.
};

/// A certificate that was made for a name after that was revoked, and whose time says otherwise: clocks are set back,
/// and a second has room for both. In the same file, under "readmitted".
struct Readmission {
  std::string serial;
  std::string name;
  std::int64_t issued_s = 0;  ///< Unix time.
};

class RevokedList {
 public:
  static constexpr std::size_t kEntriesMax = 50'000;  ///< Of both kinds together.

  /// An absent file is an empty list. Error: the file is damaged, and what to do.
  [[nodiscard]] static Result<RevokedList> load(const std::string& folder);
  /// When half of the room is taken, entries that are older than any certificate can be are left out: not before, since
  /// a clock that is wrong today makes them so, and what was revoked would hold again.
  [[nodiscard]] Status save(const std::string& folder, std::int64_t now_s) const;

  /// A name's takes back what readmit() has let in of it. Error: the list is full.
  [[nodiscard]] Status add(Revocation entry);
  /// Though its name is revoked, unless its serial is. Error: the list is full.
  [[nodiscard]] Status readmit(Readmission entry);
  [[nodiscard]] bool contains(const PeerIdentity& identity) const;
  /// Whether all of `name` was revoked, at any time.
  [[nodiscard]] bool has_name(const std::string& name) const { return names_.contains(name); }
  [[nodiscard]] bool has_serial(const std::string& serial) const { return serials_.contains(serial); }
  [[nodiscard]] const std::vector<Revocation>& entries() const { return entries_; }

 private:
  [[nodiscard]] std::size_t size() const { return entries_.size() + readmitted_.size(); }

  std::vector<Revocation> entries_;
  std::map<std::string, Readmission> readmitted_;  ///< By serial.
  std::set<std::string> serials_;
  std::map<std::string, std::int64_t> names_;  ///< Revoked until that time.
};

}  // namespace sgd::net

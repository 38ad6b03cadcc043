#pragma once
// The record of every certificate that a coordinator has issued, one line each, never changed: who is who,
// and which names are taken. A name is taken while a certificate for it holds.

#include <cstdint>
#include <map>
#include <string>

#include "common/base/result.hpp"
#include "launcher/net/peer_identity.hpp"

namespace sgd::net {

class IssuedLog {
 public:
  static constexpr std::int64_t kFileBytesMax = 16 << 20;  ///< Then a new file is begun; the one before is kept.
  std::int64_t file_bytes_max = kFileBytesMax;

  /// `issued.jsonl` of a coordinator's state folder; absent: empty. A torn line is ignored: what it was to
  /// say of was never handed out.
  [[nodiscard]] static Result<IssuedLog> load(const std::string& state_dir);

  /// Notes `identity` on disk and here; `why` says what led to it: "join 10.0.0.2", "renew", "init".
  /// Error: nothing was noted.
  [[nodiscard]] Status add(const PeerIdentity& identity, const std::string& why);
  /// The certificate for role and name that holds the longest; null: there was none.
  [[nodiscard]] const PeerIdentity* holder(Role role, const std::string& name) const;
  /// Of role and name whom the certificate with this serial was given, its newest certificate; null: it is
  /// not known.
  [[nodiscard]] const PeerIdentity* holder_of(const std::string& serial) const;
  /// Reads what others have added since.
  [[nodiscard]] Status refresh();

 private:
  void note(PeerIdentity identity);
  [[nodiscard]] Status begin_anew(std::int64_t now_s);
  explicit IssuedLog(std::string path) : path_(std::move(path)) {}

  std::string path_;
  std::uint64_t inode_ = 0;  ///< Of the file of which so much was read.
  std::uint64_t read_bytes_ = 0;
  std::int64_t kept_bytes_ = 0;                   ///< With which the file was begun anew; 0: not by this process.
  std::map<std::string, PeerIdentity> holders_;   ///< By "agent/n1".
  std::map<std::string, std::string> of_serial_;  ///< Key of holders_ by serial.
};

}  // namespace sgd::net

#pragma once
// The record of every certificate that a coordinator has issued, one line each, never changed: who is who,
// and which names are taken. A name is taken while a certificate for it holds.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "launcher/net/peer_identity.hpp"

namespace sgd::net {

class IssuedLog {
 public:
  static constexpr std::int64_t kFileBytesMax = 16 << 20;  ///< Then a new file is begun; the one before is kept.
  std::int64_t file_bytes_max = kFileBytesMax;

  /// `issued.jsonl` of a coordinator's state folder; absent: empty. A torn end is ignored, and goes with the next line:
  /// what it was to say of was never handed out. Error: another line is damaged, and what to do.
  [[nodiscard]] static Result<IssuedLog> load(const std::string& state_dir);

  /// Notes `identity` on disk and here; `why` says what led to it: "join 10.0.0.2", "renew", "init".
  /// Error: nothing was noted.
  [[nodiscard]] Status add(const PeerIdentity& identity, const std::string& why);
  /// The certificate for role and name that holds the longest; null: there was none.
  [[nodiscard]] const PeerIdentity* holder(Role role, const std::string& name) const;
  /// Of role and name whom the certificate with this serial was given, its newest certificate; null: it is
  /// not known.
  [[nodiscard]] const PeerIdentity* holder_of(const std::string& serial) const;
  /// Every certificate for `name`, of agents and clients.
  struct Certificate {
    std::string serial;
    std::int64_t issued_s = 0;
    std::int64_t expires_s = 0;
  };
  [[nodiscard]] std::vector<Certificate> certificates_of(const std::string& name) const;
  /// Reads what others have added since. Error: as of load().
  [[nodiscard]] Status refresh();

 private:
  void note(PeerIdentity identity);
  [[nodiscard]] Status begin_anew(std::int64_t now_s);
  [[nodiscard]] Status append(const std::string& line) const;
  [[nodiscard]] Error damaged(std::int64_t line) const;
  explicit IssuedLog(std::string path) : path_(std::move(path)) {}

  std::string path_;
  std::uint64_t inode_ = 0;  ///< Of the file of which so much was read.
  std::uint64_t read_bytes_ = 0;
  std::int64_t read_lines_ = 0;
  std::int64_t kept_bytes_ = 0;  ///< With which the file was begun anew; 0: not by this process.
  struct Noted {
    std::string key;  ///< Of holders_.
    std::int64_t issued_s = 0;
    std::int64_t expires_s = 0;
  };
  std::map<std::string, PeerIdentity> holders_;  ///< By "agent/n1".
  std::map<std::string, Noted> of_serial_;
};

}  // namespace sgd::net

#pragma once
// The join tokens that a coordinator has given out, as values: of each secret only the digest, and whether it
// was used. On disk it is one file, to which the verbs of the same machine write too.

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "launcher/net/join_token.hpp"

namespace sgd::net {

struct StoredToken {
  std::string id;             ///< 16 hexadecimal digits.
  std::string secret_sha256;  ///< 64.
  std::string role;           ///< "agent" or "client".
  std::string name;           ///< That it may be used for; empty: any that is free.
  bool is_admin = false;
  std::int64_t created_s = 0;  ///< Unix time, as all here.
  std::int64_t expires_s = 0;
  std::int64_t used_s = 0;  ///< 0: not used.
  std::string used_by;      ///< The name that was joined with it.
};

enum class TokenFault {
  kNone,
  kUnknown,      ///< No such id.
  kWrongSecret,  ///< The id is known: somebody guesses, or has seen a list.
  kExpired,
  kUsed,
  kOtherRole,  ///< The text was changed.
};

class TokenStore {
 public:
  static constexpr std::size_t kTokensMax = 10'000;
  static constexpr std::int64_t kKept_s = 7 * 24 * 3600;  ///< Used and expired ones are listed for so long.

  [[nodiscard]] static Result<TokenStore> parse(const std::string& json);
  [[nodiscard]] std::string to_json() const;

  /// Error: the store is full.
  [[nodiscard]] Status add(const JoinToken& token, const std::string& name, bool is_admin, std::int64_t now_s,
                           std::int64_t valid_s);
  /// What is wrong with `token` now. Its entry goes into `found` where the holder knows its secret.
  [[nodiscard]] TokenFault check(const JoinToken& token, std::int64_t now_s, StoredToken& found) const;
  /// It must be there.
  void mark_used(const std::string& id, const std::string& by, std::int64_t now_s);
  /// Whether there was one of this id.
  bool remove(const std::string& id);
  /// Tokens for `name` that were not used; how many there were.
  std::size_t remove_open(const std::string& name);
  /// Forgets what ended long ago.
  void prune(std::int64_t now_s);
  [[nodiscard]] const std::vector<StoredToken>& tokens() const { return tokens_; }

 private:
  std::vector<StoredToken> tokens_;
};

/// `tokens.json` of a coordinator's state folder. Whoever changes it holds the folder's lock meanwhile. Error: it is
/// damaged, and what to do.
[[nodiscard]] Result<TokenStore> load_tokens(const std::string& state_dir);
[[nodiscard]] Status save_tokens(const std::string& state_dir, const TokenStore& store);

}  // namespace sgd::net

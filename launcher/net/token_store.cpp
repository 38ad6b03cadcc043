#include "launcher/net/token_store.hpp"

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "common/messages/codec.hpp"
#include "launcher/net/private_files.hpp"

namespace sgd::net {
namespace {

constexpr std::size_t kFileBytesMax = 8 << 20;
constexpr int kSchema = 1;

struct TokensFile {
  int schema_version = kSchema;
  std::vector<StoredToken> tokens;
};

std::string tokens_file(const std::string& state_dir) {
  return state_dir + "/tokens.json";
}

}  // namespace
}  // namespace sgd::net

namespace sgd::codec {

template <>
inline constexpr auto kMessage<net::StoredToken> =
    message("", required("id", &net::StoredToken::id), required("secret_sha256", &net::StoredToken::secret_sha256),
            required("role", &net::StoredToken::role), optional("name", &net::StoredToken::name),
            optional("is_admin", &net::StoredToken::is_admin), required("created_s", &net::StoredToken::created_s),
            required("expires_s", &net::StoredToken::expires_s), optional("used_s", &net::StoredToken::used_s),
            optional("used_by", &net::StoredToken::used_by));
template <>
inline constexpr auto kMessage<net::TokensFile> = message("",
                                                          required("schema_version", &net::TokensFile::schema_version),
                                                          required("tokens", &net::TokensFile::tokens));

}  // namespace sgd::codec

namespace sgd::net {

Result<TokenStore> TokenStore::parse(const std::string& json) {
  const Result<codec::Json> object = codec::parse_object(json, codec::kDepthMax);
  if (!object) return object.error();
  TokensFile file;
  if (const Status read = codec::read_fields(object.value(), file); !read) return read.error();
  if (file.schema_version != kSchema)
    return Error{fmt::format("its schema_version is {}, and only {} is known", file.schema_version, kSchema)};
  TokenStore store;
  store.tokens_ = std::move(file.tokens);
  return store;
}

std::string TokenStore::to_json() const {
  TokensFile file;
  file.tokens = tokens_;
  return codec::write_fields(file).dump(1) + "\n";
}

Status TokenStore::add(const JoinToken& token, const std::string& name, bool is_admin, std::int64_t now_s,
                       std::int64_t valid_s) {
  prune(now_s);
  if (tokens_.size() >= kTokensMax) return Error{fmt::format("{} join tokens are waiting: revoke some", kTokensMax)};
  StoredToken entry;
  entry.id = to_hex(token.id);
  entry.secret_sha256 = to_hex(sha256(token.secret));
  entry.role = role_name(token.role);
  entry.name = name;
  entry.is_admin = is_admin;
  entry.created_s = now_s;
  entry.expires_s = now_s + valid_s;
  tokens_.push_back(std::move(entry));
  return {};
}

TokenFault TokenStore::check(const JoinToken& token, std::int64_t now_s, StoredToken& found) const {
  const std::string id = to_hex(token.id);
  const auto entry = std::find_if(tokens_.begin(), tokens_.end(), [&](const StoredToken& one) { return one.id == id; });
  if (entry == tokens_.end()) return TokenFault::kUnknown;
  const std::optional<Digest> wanted = digest_from_hex(entry->secret_sha256);
  if (!wanted || !equal_in_constant_time(*wanted, sha256(token.secret))) return TokenFault::kWrongSecret;
  if (entry->role != role_name(token.role)) return TokenFault::kOtherRole;
  found = *entry;
  if (entry->used_s != 0) return TokenFault::kUsed;
  if (now_s >= entry->expires_s) return TokenFault::kExpired;
  return TokenFault::kNone;
}

void TokenStore::mark_used(const std::string& id, const std::string& by, std::int64_t now_s) {
  const auto entry = std::find_if(tokens_.begin(), tokens_.end(), [&](const StoredToken& one) { return one.id == id; });
  SGD_ASSERT(entry != tokens_.end());
  entry->used_s = now_s;
  entry->used_by = by;
}

bool TokenStore::remove(const std::string& id) {
  return std::erase_if(tokens_, [&](const StoredToken& one) { return one.id == id; }) > 0;
}

std::size_t TokenStore::remove_open(const std::string& name) {
  return std::erase_if(tokens_, [&](const StoredToken& token) { return token.name == name && token.used_s == 0; });
}

void TokenStore::prune(std::int64_t now_s) {
  std::erase_if(tokens_, [&](const StoredToken& one) { return std::max(one.expires_s, one.used_s) + kKept_s < now_s; });
}

Result<TokenStore> load_tokens(const std::string& state_dir) {
  const Result<std::string> text = read_file(tokens_file(state_dir), kFileBytesMax, Readers::kOwner);
  if (!text && text.error().code == ENOENT) return TokenStore();
  if (!text) return text.error();
  Result<TokenStore> store = TokenStore::parse(text.value());
  if (!store)
    return Error{
        fmt::format("{} is damaged: {}. Move it away: join tokens that are out are void then, and `sgd-launch "
                    "token create` makes new ones; or put a copy from before in its place",
                    tokens_file(state_dir), store.error().message)};
  return store;
}

Status save_tokens(const std::string& state_dir, const TokenStore& store) {
  return write_file(tokens_file(state_dir), store.to_json(), Readers::kOwner);
}

}  // namespace sgd::net

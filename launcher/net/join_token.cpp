#include "launcher/net/join_token.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "common/base/assert.hpp"

namespace sgd::net {
namespace {

constexpr std::string_view kFront = "sgd-join-";
constexpr std::uint8_t kVersion = 1;
constexpr std::size_t kCheckBytes = 4;
constexpr std::size_t kBodyBytes = 1 + 8 + 32 + 32 + 1;
constexpr std::size_t kTextBytesMax = 256;
constexpr std::string_view kWhite = " \t\r\n";

/// First bytes of the body's digest.
std::vector<std::uint8_t> check_of(std::span<const std::uint8_t> body) {
  const Digest digest = sha256(body);
  return {digest.begin(), digest.begin() + kCheckBytes};
}

}  // namespace

JoinToken make_join_token(const Digest& ca_key, Role role) {
  JoinToken token;
  fill_random(token.id);
  fill_random(token.secret);
  token.ca_key = ca_key;
  token.role = role;
  return token;
}

std::string to_text(const JoinToken& token) {
  std::vector<std::uint8_t> bytes{kVersion};
  bytes.insert(bytes.end(), token.id.begin(), token.id.end());
  bytes.insert(bytes.end(), token.secret.begin(), token.secret.end());
  bytes.insert(bytes.end(), token.ca_key.begin(), token.ca_key.end());
  bytes.push_back(static_cast<std::uint8_t>(token.role));
  SGD_ASSERT(bytes.size() == kBodyBytes);
  const std::vector<std::uint8_t> check = check_of(bytes);
  bytes.insert(bytes.end(), check.begin(), check.end());
  return std::string(kFront) + to_base64url(bytes);
}

Result<JoinToken> parse_join_token(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(kWhite), text.size());
  text = text.substr(begin, text.find_last_not_of(kWhite) + 1 - begin);
  if (!text.starts_with(kFront) || text.size() > kTextBytesMax)
    return Error{"not a join token: one begins with " + std::string(kFront)};
  const std::optional<std::vector<std::uint8_t>> bytes = from_base64url(text.substr(kFront.size()));
  if (bytes && bytes->size() >= kBodyBytes && bytes->front() > kVersion)
    return Error{"a join token of a newer version: update this sgd-launch"};
  if (!bytes || bytes->size() != kBodyBytes + kCheckBytes) return Error{"the join token is cut off or mistyped"};
  const auto body = std::span(*bytes).first(kBodyBytes);
  const std::vector<std::uint8_t> check = check_of(body);
  if (!std::equal(check.begin(), check.end(), bytes->end() - kCheckBytes)) return Error{"the join token is mistyped"};
  JoinToken token;
  auto from = body.begin() + 1;
  const auto take = [&from](auto& into) {
    std::copy_n(from, into.size(), into.begin());
    from += static_cast<std::ptrdiff_t>(into.size());
  };
  take(token.id);
  take(token.secret);
  take(token.ca_key);
  token.role = static_cast<Role>(*from);
  if (token.role != Role::kAgent && token.role != Role::kClient) return Error{"the join token is for no known role"};
  return token;
}

}  // namespace sgd::net

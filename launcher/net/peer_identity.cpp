#include "launcher/net/peer_identity.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "common/base/assert.hpp"

namespace sgd::net {
namespace {

constexpr std::array<std::pair<Role, const char*>, 3> kRoles{{
    {Role::kCoordinator, "coordinator"},
    {Role::kAgent, "agent"},
    {Role::kClient, "client"},
}};
constexpr std::string_view kScheme = "sgd://";
constexpr std::string_view kAdmin = "/admin";

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

}  // namespace

const char* role_name(Role role) {
  for (const auto& [value, name] : kRoles)
    if (value == role) return name;
  return "none";
}

std::optional<Role> role_of(std::string_view name) {
  for (const auto& [value, text] : kRoles)
    if (text == name) return value;
  return std::nullopt;
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kNameBytesMax && is_letter_or_digit(text.front()) &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return is_letter_or_digit(c) || c == '.' || c == '_' || c == '-'; });
}

std::string identity_uri(Role role, const std::string& name, bool is_admin) {
  SGD_ASSERT(role != Role::kNone && is_name(name) && (!is_admin || role == Role::kClient));
  return fmt::format("{}{}/{}{}", kScheme, role_name(role), name, is_admin ? kAdmin : "");
}

std::optional<PeerIdentity> parse_identity_uri(std::string_view uri) {
  if (!uri.starts_with(kScheme)) return std::nullopt;
  uri.remove_prefix(kScheme.size());
  const std::size_t slash = uri.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const std::optional<Role> role = role_of(uri.substr(0, slash));
  if (!role) return std::nullopt;
  std::string_view name = uri.substr(slash + 1);
  PeerIdentity identity;
  identity.role = *role;
  if (*role == Role::kClient && name.ends_with(kAdmin)) {
    identity.is_admin = true;
    name.remove_suffix(kAdmin.size());
  }
  if (!is_name(name)) return std::nullopt;
  identity.name = name;
  return identity;
}

std::string describe(const PeerIdentity& identity) {
  if (identity.role == Role::kNone) return "nobody";
  return fmt::format("{} {} (certificate {})", role_name(identity.role), identity.name, identity.serial);
}

}  // namespace sgd::net

#include "launcher/net/admission.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

namespace sgd::net {
namespace {

struct Rule {
  std::string_view kind;
  std::array<bool, 4> roles;  ///< By Role: none, coordinator, agent, client.
};
// A coordinator calls nobody: its certificate lets it in nowhere.
constexpr std::array<Rule, 3> kRules{{
    {"client", {false, false, false, true}},
    {"join", {true, false, true, true}},
    {"renew", {false, false, true, true}},
}};
constexpr std::array<bool, 4> kAgentsOnly{false, false, true, false};

}  // namespace

Refusal refusal_of_visit(std::string_view kind, const PeerIdentity& peer) {
  const auto rule = std::find_if(kRules.begin(), kRules.end(), [&](const Rule& one) { return one.kind == kind; });
  const std::array<bool, 4>& roles = rule == kRules.end() ? kAgentsOnly : rule->roles;
  if (roles[static_cast<std::size_t>(peer.role)]) return {};
  if (peer.role == Role::kNone)
    return {RefusalKind::kNoCertificate,
            fmt::format("without a certificate nobody may say \"{}\", only \"join\"", kind)};
  return {RefusalKind::kWrongRole, fmt::format("{} {} may not say \"{}\"", role_name(peer.role), peer.name, kind)};
}

std::string refusal_of_node(std::string_view node, const PeerIdentity& peer) {
  if (peer.role == Role::kAgent && peer.name == node) return {};
  return fmt::format("{} {} may not speak for node {}", role_name(peer.role), peer.name, node);
}

}  // namespace sgd::net

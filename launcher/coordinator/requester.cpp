#include "launcher/coordinator/requester.hpp"

#include <fmt/format.h>

namespace sgd::coordinator {

Requester requester_of(const net::Session& session) {
  const net::PeerIdentity& identity = session.peer_identity();
  if (!session.is_secure()) return {identity.name, {}, session.peer(), true, identity.uid};
  return {identity.name, identity.serial, session.peer(), identity.is_admin};
}

bool may_be_root(const Requester& who) {
  return who.uid ? *who.uid == 0 : who.is_admin && !who.certificate.empty();
}

nlohmann::ordered_json refused(const char* kind, const std::string& error) {
  return {{"ok", false}, {"kind", kind}, {"error", error}};
}

std::string refusal_of_change(const Requester& who, const std::string& what, const std::string& run,
                              const std::string& owner) {
  if (who.is_admin || (!who.name.empty() && who.name == owner)) return {};
  return fmt::format("{} is a run of {}: only {} or an admin may {}, and you are {}", run,
                     owner.empty() ? "nobody" : owner, owner.empty() ? "nobody" : owner, what, who.name);
}

std::string refusal_of_order(const Requester& who) {
  if (who.is_admin) return {};
  return fmt::format("orders to nodes are for admins, and {} is none: a token made with --admin makes one", who.name);
}

}  // namespace sgd::coordinator

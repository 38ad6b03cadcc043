#pragma once
// Who may come as what: the role that a certificate must have for each kind of session. What is not in this
// table is for agents, so that a new kind is not open by oversight.

#include <string>
#include <string_view>

#include "launcher/net/peer_identity.hpp"
#include "launcher/net/refusal.hpp"

namespace sgd::net {

/// Why `peer`, proved by its certificate, may not be a session of `kind`; kNone: it may.
[[nodiscard]] Refusal refusal_of_visit(std::string_view kind, const PeerIdentity& peer);

/// Why `peer` may not speak for `node`; empty: it may.
[[nodiscard]] std::string refusal_of_node(std::string_view node, const PeerIdentity& peer);

}  // namespace sgd::net

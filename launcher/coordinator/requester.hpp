#pragma once
// Who asks something of a coordinator, and what of it is refused.

#include <string>

#include "common/json/nlohmann.hpp"
#include "launcher/net/door.hpp"

namespace sgd::coordinator {

struct Requester {
  std::string name;         ///< Of the certificate; without TLS, what the client says of itself.
  std::string certificate;  ///< Its serial; empty without TLS.
  std::string peer;         ///< "10.0.0.2:41822".
  bool is_admin = false;    ///< May act on the runs of others, and on nodes.
};

/// Loopback without TLS proves nobody: whoever is on this machine may act on everything, as on one's own machine.
[[nodiscard]] Requester requester_of(const net::Visitor& visitor);

/// The answer to what is refused; `kind` is for programs.
[[nodiscard]] nlohmann::ordered_json refused(const char* kind, const std::string& error);

/// Why `who` may not stop or change a run of `owner`; empty: it may.
[[nodiscard]] std::string refusal_of_change(const Requester& who, const std::string& run, const std::string& owner);
/// The same for orders to nodes.
[[nodiscard]] std::string refusal_of_order(const Requester& who);

}  // namespace sgd::coordinator

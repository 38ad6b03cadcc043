#pragma once
// Who asks something of a coordinator, and what of it is refused.

#include <cstdint>
#include <optional>
#include <string>

#include "common/json/nlohmann.hpp"
#include "launcher/net/gateway.hpp"

namespace sgd::coordinator {

struct Requester {
  std::string name;         ///< Of the certificate, or the account at a Unix socket; empty in plain text over TCP.
  std::string certificate;  ///< Its serial; empty without TLS.
  std::string peer;         ///< As net::peer_name() says it.
  bool is_admin = false;    ///< May act on the runs of others, and on nodes.
  std::optional<std::uint32_t> uid = {};  ///< At a Unix socket, as the kernel says.
};

/// Whoever gets through the Unix socket is the coordinator's own account or root, and may do everything, as on one's
/// own machine. Plain text over TCP (--insecure-loopback) proves nobody, and lets everybody on this machine do the
/// same.
[[nodiscard]] Requester requester_of(const net::Session& session);

/// Whether jobs of `who` may have root's account where a node gives it (--allow-root): root itself, as the kernel says,
/// or an admin by certificate. What nothing proves may not.
[[nodiscard]] bool may_be_root(const Requester& who);

/// The answer to what is refused; `kind` is for programs.
[[nodiscard]] nlohmann::ordered_json refused(const char* kind, const std::string& error);

/// Why `who` may not do `what` ("stop it") with a run of `owner`; empty: it may.
[[nodiscard]] std::string refusal_of_change(const Requester& who, const std::string& what, const std::string& run,
                                            const std::string& owner);
/// The same for orders to nodes.
[[nodiscard]] std::string refusal_of_order(const Requester& who);

}  // namespace sgd::coordinator

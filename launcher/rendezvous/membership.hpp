#pragma once
// Who a launcher is among those that share a secret: coordinator, agent and client of a cluster that lives as long as
// the run. Each machine makes its own certificates; nothing is exchanged.

#include <memory>
#include <string>

#include "common/base/result.hpp"
#include "launcher/net/tls_context.hpp"

namespace sgd::rendezvous {

/// The folders below `base`, which is private.
struct Folders {
  std::string coordinator;  ///< State of the coordinator; of the first machine.
  std::string agent;        ///< State of this machine's agent.
  std::string client;       ///< Identity of the launcher itself.

  [[nodiscard]] static Folders below(const std::string& base);
};

/// Fills the folders with identities; `node`: the name of this machine's agent. The launcher's own, to speak to the
/// coordinator with.
[[nodiscard]] Result<std::shared_ptr<const net::TlsContext>> make_identities(const Folders& folders,
                                                                             const std::string& secret,
                                                                             const std::string& id,
                                                                             const std::string& node, bool is_head);

}  // namespace sgd::rendezvous

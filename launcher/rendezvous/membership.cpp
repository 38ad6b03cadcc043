#include "launcher/rendezvous/membership.hpp"

#include "launcher/net/cluster_state.hpp"
#include "launcher/net/private_files.hpp"
#include "launcher/net/wall_clock.hpp"

namespace sgd::rendezvous {

Folders Folders::below(const std::string& base) {
  return {base + "/coordinator", base + "/agent", base + "/client"};
}

Result<std::shared_ptr<const net::TlsContext>> make_identities(const Folders& folders, const std::string& secret,
                                                               const std::string& id, const std::string& node,
                                                               bool is_head) {
  const std::int64_t now_s = net::unix_now_s();
  const auto ca = net::CertificateAuthority::derive(secret, "rendezvous " + id, now_s);
  for (const std::string& folder : {folders.coordinator, folders.agent, folders.client})
    if (const Status made = net::make_private_folder(folder); !made) return made.error();
  const auto make = [&](const net::Grant& grant, const std::string& folder) -> Status {
    const auto made = net::make_identity(folders.coordinator, ca, grant, folder, now_s);
    return made ? Status() : Status(made.error());
  };
  Status made = make({net::Role::kAgent, node, false, {}}, folders.agent + "/identity");
  if (made) made = make({net::Role::kClient, node, true, {}}, folders.client);
  if (made && is_head) made = ca.save(net::ca_folder(folders.coordinator));
  if (made && is_head)
    made = make({net::Role::kCoordinator, node, false, {}}, net::coordinator_identity_folder(folders.coordinator));
  if (!made) return made.error();
  return net::TlsContext::load(folders.client);
}

}  // namespace sgd::rendezvous

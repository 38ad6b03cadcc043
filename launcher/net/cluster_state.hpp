#pragma once
// The security part of a coordinator's state folder, and what is done to it where the authority's key lies.
//
//   ca/            the authority: ca.pem, ca.key
//   identity/      the coordinator's own identity, and revoked.json
//   tokens.json    join tokens that were given out
//   issued.jsonl   every certificate that was issued
//   coordinator.sock  where a coordinator without an identity listens

#include <cstdint>
#include <string>

#include "common/base/result.hpp"
#include "launcher/net/ca.hpp"
#include "launcher/net/identity_files.hpp"
#include "launcher/net/issued_log.hpp"
#include "launcher/net/peer_identity.hpp"

namespace sgd::net {

[[nodiscard]] std::string ca_folder(const std::string& state_dir);
/// Where it listens without an identity, unless told otherwise.
[[nodiscard]] std::string coordinator_socket(const std::string& state_dir);
/// For TlsContext::load().
[[nodiscard]] std::string coordinator_identity_folder(const std::string& state_dir);

/// Makes a key and a certificate of `ca` for it, and notes the certificate in `state_dir`.
[[nodiscard]] Result<IdentityFiles> issue_identity(const std::string& state_dir, const CertificateAuthority& ca,
                                                   const Grant& grant, std::int64_t now_s);
/// The same, and writes both to `folder`.
[[nodiscard]] Result<PeerIdentity> make_identity(const std::string& state_dir, const CertificateAuthority& ca,
                                                 const Grant& grant, const std::string& folder, std::int64_t now_s);

/// Shuts out all that was issued to `name` until now, whatever the clock says now and said then: the name until the
/// newest of them, and each that holds by its serial. A name of which `issued` knows nothing is shut out for as long as
/// a certificate can hold. Whoever is given the name after that is readmitted by the join service.
[[nodiscard]] Status revoke_name(RevokedList& list, const IssuedLog& issued, const std::string& name,
                                 std::int64_t now_s);

/// Replaces the coordinator's own certificate when two thirds of its time are over; a context takes it up by
/// itself. Says whether it was. For the start of a coordinator, and once a day.
[[nodiscard]] Result<bool> renew_coordinator(const std::string& state_dir, std::int64_t now_s);

}  // namespace sgd::net

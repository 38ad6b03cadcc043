#pragma once
// What the machines of one run know and nobody else: their identities follow from it
// (net::CertificateAuthority::derive).

#include <string>

#include "common/base/result.hpp"

namespace sgd::rendezvous {

/// Fewer bytes could be guessed.
inline constexpr std::size_t kSecretBytesMin = 16;

/// In place of a secret where whoever reaches the port may take part.
inline constexpr const char* kNoSecret = "no secret: everybody may take part";

/// $XDG_CONFIG_HOME/sgd-launch/rendezvous-secret (~/.config by default); empty without a home.
[[nodiscard]] std::string usual_secret_file();

/// The text in `file`, without spaces at its ends. Errors: absent, too short, open to every account, with the remedy.
[[nodiscard]] Result<std::string> read_secret(const std::string& file);

/// The text in `file`, which only its owner may read. Where it is absent it is made, in one moment and once, however
/// many machines that see the same folder do so.
[[nodiscard]] Result<std::string> read_or_make_secret(const std::string& file);

}  // namespace sgd::rendezvous

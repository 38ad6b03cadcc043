#pragma once
// Which coordinator a verb speaks to, if any, and one question to it.

#include <memory>
#include <optional>
#include <string>

#include "common/base/result.hpp"
#include "common/json/diagnostics.hpp"
#include "common/json/nlohmann.hpp"
#include "launcher/cli/command_line.hpp"
#include "launcher/net/dialer.hpp"
#include "launcher/net/tls_context.hpp"

namespace sgd::cli {

/// `--address`, and the environment's SGD_ADDRESS.
[[nodiscard]] Option address_option(std::string& given);
/// $XDG_CONFIG_HOME/sgd-launch/config.json (~/.config by default); empty without a home.
[[nodiscard]] std::string user_configuration_file();
/// From `given` ("HOST:PORT", "HOST", "unix:PATH", "auto", "local"), else from the user's configuration file
/// ({"address": "HOST:PORT"}); nothing: no cluster, runs are on this machine.
/// "auto": the coordinator on this machine. "local": no cluster, whatever the file says.
[[nodiscard]] std::optional<net::Address> cluster_address(const std::string& given, Diagnostics& diagnostics);
/// "HOST:PORT", "[::1]:7070", "unix:PATH", or "HOST" with the default port; nothing when it is none of these.
[[nodiscard]] std::optional<net::Address> parse_address(const std::string& text);
/// The coordinator on this machine that this account can speak to: at the Unix socket where one without an identity
/// listens, else, for a holder of the identity in `identity_dir`, on loopback.
[[nodiscard]] net::Address local_coordinator(const std::string& identity_dir);

/// The same, where it answers. An error of code ENOENT: none runs here.
[[nodiscard]] Result<net::Address> coordinator_here();

/// The calling user's identity, to speak to `coordinator` with; null: plain text is spoken, over a Unix socket, or on
/// loopback with a coordinator that was started with --insecure-loopback. Error: there is none, and jobs would travel
/// in plain text to nobody knows whom.
[[nodiscard]] Result<std::shared_ptr<const net::TlsContext>> user_tls(const net::Address& coordinator);

/// "no coordinator at HOST:PORT: Connection refused": `reason` is why a link to it was not made. Where one answers and
/// a certificate is refused: "the coordinator at HOST:PORT refuses this side's certificate: it is revoked"; where it is
/// missing: how one comes to it.
[[nodiscard]] std::string no_coordinator(const net::Address& address, const std::string& reason);
/// The coordinator's answer, {"ok":...}. Error: it cannot be reached (code ENOENT: nobody is there), or does not
/// answer in time.
[[nodiscard]] Result<nlohmann::ordered_json> ask_cluster(const net::Address& address, nlohmann::ordered_json request);
/// The same by another identity than the user's.
[[nodiscard]] Result<nlohmann::ordered_json> ask_cluster(const net::Address& address,
                                                         std::shared_ptr<const net::TlsContext> tls,
                                                         nlohmann::ordered_json request);

}  // namespace sgd::cli

#pragma once
// Whether a name is this machine's, and where others reach it.

#include <string>

#include "launcher/net/address.hpp"

namespace sgd::rendezvous {

/// `host`: a name or an IP address. One that cannot be looked up is nobody's.
[[nodiscard]] bool is_own_host(const std::string& host);

/// The address of this machine where `head` is reached from other machines, if it is this one: not the loopback address
/// that some systems give to their own name. Empty: there is none, or `head` is a loopback address itself.
[[nodiscard]] std::string own_address(const net::Address& head);

}  // namespace sgd::rendezvous

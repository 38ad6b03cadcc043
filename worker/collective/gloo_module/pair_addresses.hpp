#pragma once
// The addresses of one rank's ends of all pairs as one short text. They are of one host and differ in their port and in
// a number of Gloo's, which not every version has: the host stands there once, and of each end only the rest. So a peer
// takes some six bytes of the text, and not 272.

#include <string>
#include <vector>

#include <gloo/transport/tcp/address.h>

namespace sgd::worker {

/// "<socket without its port, hexadecimal>/<port>/<port>+<number>/...". `ends` has at least one; throws
/// std::invalid_argument if they are not of one host.
[[nodiscard]] std::string pack_addresses(const std::vector<gloo::transport::tcp::Address>& ends);

/// Of the end at `index`, as Gloo takes it. Throws std::invalid_argument with what is wrong with `text`.
[[nodiscard]] std::vector<char> unpack_address(const std::string& text, std::size_t index);

}  // namespace sgd::worker

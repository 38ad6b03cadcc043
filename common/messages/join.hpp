#pragma once
// How somebody gets a certificate of the cluster: with a join token and a signing request, or, with a
// certificate that still holds, a new one in its place. First message of a connection, and its only answer.

#include <string>
#include <string_view>
#include <variant>

#include "common/base/result.hpp"

namespace sgd::join {

struct Join {
  std::string token;         ///< As `sgd-launch token create` has printed it.
  std::string csr;           ///< PEM.
  std::string name;          ///< That the joiner wants; empty: the token's, if it is for one.
  std::string default_name;  ///< Where neither says one: the joiner's host or user.
};
/// Role and name are those of the certificate that the connection has shown.
struct Renew {
  std::string csr;
};

using Request = std::variant<Join, Renew>;

struct Joined {
  std::string certificate;  ///< PEM, as `ca`.
  std::string ca;
};
struct Refused {
  std::string reason;
};

using Response = std::variant<Joined, Refused>;

[[nodiscard]] std::string encode(const Request& message);
[[nodiscard]] std::string encode(const Response& message);
[[nodiscard]] Result<Request> decode_request(std::string_view json);
[[nodiscard]] Result<Response> decode_response(std::string_view json);

}  // namespace sgd::join

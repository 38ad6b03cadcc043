#include "common/messages/join.hpp"

#include "common/messages/codec.hpp"

namespace sgd::codec {

template <>
inline constexpr auto kMessage<join::Join> = message("join", required("token", &join::Join::token),
                                                     required("csr", &join::Join::csr),
                                                     optional("name", &join::Join::name),
                                                     optional("default_name", &join::Join::default_name));
template <>
inline constexpr auto kMessage<join::Renew> = message("renew", required("csr", &join::Renew::csr));
template <>
inline constexpr auto kMessage<join::Joined> = message("joined", required("certificate", &join::Joined::certificate),
                                                       required("ca", &join::Joined::ca));
template <>
inline constexpr auto kMessage<join::Refused> = message("refused", required("reason", &join::Refused::reason));

}  // namespace sgd::codec

namespace sgd::join {

std::string encode(const Request& message) {
  return codec::print(codec::write_variant(message));
}
std::string encode(const Response& message) {
  return codec::print(codec::write_variant(message));
}
Result<Request> decode_request(std::string_view json) {
  return codec::decode<Request>(json);
}
Result<Response> decode_response(std::string_view json) {
  return codec::decode<Response>(json);
}

}  // namespace sgd::join

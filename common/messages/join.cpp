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

std::string encode(const FromVisitor& message) {
  return codec::print(codec::write_variant(message));
}
std::string encode(const ToVisitor& message) {
  return codec::print(codec::write_variant(message));
}
Result<FromVisitor> decode_from_visitor(std::string_view json) {
  return codec::decode<FromVisitor>(json);
}
Result<ToVisitor> decode_to_visitor(std::string_view json) {
  return codec::decode<ToVisitor>(json);
}

}  // namespace sgd::join

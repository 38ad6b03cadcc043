#include "common/messages/node_output.hpp"

#include "common/messages/codec.hpp"
#include "common/messages/frame.hpp"

namespace sgd::codec {

template <>
inline constexpr auto kMessage<node_output::Warning> = message("warning",
                                                               required("text", &node_output::Warning::text));
template <>
inline constexpr auto kMessage<node_output::AllSaid> = message("all_said");
template <>
inline constexpr auto kMessage<node_output::Taken> = message("taken", required("bytes", &node_output::Taken::bytes));

}  // namespace sgd::codec

namespace sgd::node_output {

std::string encode(const FromAgent& message) {
  return encode_frame(FrameKind::kJson, codec::print(codec::write_variant(message)));
}
std::string encode(const ToAgent& message) {
  return encode_frame(FrameKind::kJson, codec::print(codec::write_variant(message)));
}
Result<FromAgent> decode_from_agent(std::string_view json) {
  return codec::decode<FromAgent>(json);
}
Result<ToAgent> decode_to_agent(std::string_view json) {
  return codec::decode<ToAgent>(json);
}

}  // namespace sgd::node_output

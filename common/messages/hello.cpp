#include "common/messages/hello.hpp"

#include <algorithm>
#include <variant>

#include "common/messages/codec.hpp"

namespace sgd::codec {

template <>
inline constexpr auto kMessage<hello::Hello> = message("hello", required("protocol_min", &hello::Hello::protocol_min),
                                                       required("protocol_max", &hello::Hello::protocol_max));

}  // namespace sgd::codec

namespace sgd::hello {
namespace {

std::string range_of(const Hello& hello) {
  const std::string newest = std::to_string(hello.protocol_max);
  return hello.protocol_min == hello.protocol_max ? newest : std::to_string(hello.protocol_min) + " to " + newest;
}

}  // namespace

std::string encode(const Hello& hello) {
  return codec::print(codec::write_variant(std::variant<Hello>(hello)));
}

Result<Hello> decode(std::string_view json) {
  Result<std::variant<Hello>> decoded = codec::decode<std::variant<Hello>>(json);
  if (!decoded) return decoded.error();
  const Hello hello = std::get<Hello>(decoded.value());
  if (hello.protocol_min < 1 || hello.protocol_max < hello.protocol_min)
    return Error{"versions " + std::to_string(hello.protocol_min) + " to " + std::to_string(hello.protocol_max) +
                 " are no range"};
  return hello;
}

Result<int> agree(const Hello& own, const Hello& other) {
  const int newest = std::min(own.protocol_max, other.protocol_max);
  if (newest >= std::max(own.protocol_min, other.protocol_min)) return newest;
  const bool we_are_older = own.protocol_max < other.protocol_min;
  return Error{"this side speaks version " + range_of(own) + " of the protocol, the other side version " +
               range_of(other) + "; update " + (we_are_older ? "this" : "the other") + " one"};
}

}  // namespace sgd::hello

// Keys and type names of the warm server's protocol.

#include "common/messages/warm.hpp"

#include "common/messages/codec.hpp"
#include "common/messages/frame.hpp"

namespace sgd::codec {

template <>
inline constexpr auto kMessage<warm::Setting> = message("", required("environment", &warm::Setting::environment),
                                                        required("workdir", &warm::Setting::workdir),
                                                        required("server", &warm::Setting::server));
template <>
inline constexpr auto kMessage<warm::Take> = message("take", required("setting", &warm::Take::setting));
template <>
inline constexpr auto kMessage<warm::Seek> = message("seek", required("setting", &warm::Seek::setting));
template <>
inline constexpr auto kMessage<warm::Keep> = message("keep", required("setting", &warm::Keep::setting),
                                                     required("name", &warm::Keep::name),
                                                     optional("idle_s", &warm::Keep::idle_s));
template <>
inline constexpr auto kMessage<warm::Look> = message("look");
template <>
inline constexpr auto kMessage<warm::End> = message("end");

template <>
inline constexpr auto kMessage<warm::Found> = message("found");
template <>
inline constexpr auto kMessage<warm::Taken> = message("taken", required("pid", &warm::Taken::pid));
template <>
inline constexpr auto kMessage<warm::Refused> = message("refused", required("reason", &warm::Refused::reason),
                                                        optional("is_near", &warm::Refused::is_near));
template <>
inline constexpr auto kMessage<warm::Spare> = message("", required("name", &warm::Spare::name),
                                                      required("state", &warm::Spare::state),
                                                      optional("reason", &warm::Spare::reason),
                                                      optional("pid", &warm::Spare::pid),
                                                      optional("start_s", &warm::Spare::start_s),
                                                      optional("bytes", &warm::Spare::bytes),
                                                      optional("runs", &warm::Spare::runs));
template <>
inline constexpr auto kMessage<warm::Held> = message("held", required("spares", &warm::Held::spares),
                                                     optional("pid", &warm::Held::pid),
                                                     optional("idle_s", &warm::Held::idle_s));

template <>
inline constexpr auto kMessage<warm::Prepare> = message("prepare", required("setting", &warm::Prepare::setting));
template <>
inline constexpr auto kMessage<warm::Adopt> = message("adopt", required("setting", &warm::Adopt::setting));
template <>
inline constexpr auto kMessage<warm::Ready> = message("ready", optional("reason", &warm::Ready::reason));

}  // namespace sgd::codec

namespace sgd::warm {
namespace {

template <class Message>
std::string frame_of(const Message& message) {
  return encode_frame(FrameKind::kJson, codec::print(codec::write_variant(message)));
}

}  // namespace

Setting with_server(Setting setting, const keeper::StartForkServer& server) {
  setting.server = nlohmann::json::parse(encode(keeper::ToKeeper(server)).substr(kFrameHeaderBytes), nullptr, false);
  return setting;
}

Result<keeper::StartForkServer> server_of(const Setting& setting) {
  auto message = keeper::decode_to_keeper(setting.server.dump());
  if (!message) return message.error();
  auto* server = std::get_if<keeper::StartForkServer>(&message.value());
  if (server == nullptr) return Error{"it names no fork server"};
  return std::move(*server);
}

std::string encode(const ToServer& message) {
  return frame_of(message);
}

std::string encode(const FromServer& message) {
  return frame_of(message);
}

std::string encode(const ToSpare& message) {
  return frame_of(message);
}

std::string encode(const FromSpare& message) {
  return frame_of(message);
}

Result<ToServer> decode_to_server(std::string_view json) {
  return codec::decode<ToServer>(json);
}

Result<FromServer> decode_from_server(std::string_view json) {
  return codec::decode<FromServer>(json);
}

Result<ToSpare> decode_to_spare(std::string_view json) {
  return codec::decode<ToSpare>(json);
}

Result<FromSpare> decode_from_spare(std::string_view json) {
  return codec::decode<FromSpare>(json);
}

}  // namespace sgd::warm

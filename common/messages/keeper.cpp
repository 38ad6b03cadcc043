// Keys and type names of the keeper's protocol, and its messages as JSON frames.

#include "common/messages/keeper.hpp"

#include "common/messages/codec.hpp"
#include "common/messages/frame.hpp"

namespace sgd::codec {

template <>
inline constexpr auto kMessage<keeper::StartForkServer> =
    message("start_fork_server", required("argv", &keeper::StartForkServer::argv),
            optional("job", &keeper::StartForkServer::job), optional("log_path", &keeper::StartForkServer::log_path));
template <>
inline constexpr auto kMessage<keeper::Spawn> =
    message("spawn", required("generation", &keeper::Spawn::generation), required("rank", &keeper::Spawn::rank),
            optional("fork_server", &keeper::Spawn::fork_server), optional("argv", &keeper::Spawn::argv),
            optional("env", &keeper::Spawn::env), optional("workdir", &keeper::Spawn::workdir),
            optional("cpus", &keeper::Spawn::cpus), optional("threads", &keeper::Spawn::threads),
            optional("log_path", &keeper::Spawn::log_path));
template <>
inline constexpr auto kMessage<keeper::Signal> = message("signal", required("generation", &keeper::Signal::generation),
                                                         required("rank", &keeper::Signal::rank),
                                                         required("signal", &keeper::Signal::signal));
template <>
inline constexpr auto kMessage<keeper::Clear> = message("clear", required("generation", &keeper::Clear::generation));
template <>
inline constexpr auto kMessage<keeper::Close> = message("close");
template <>
inline constexpr auto kMessage<keeper::OutputAck> = message("output_ack", required("bytes", &keeper::OutputAck::bytes));

template <>
inline constexpr auto kMessage<keeper::Attach> = message("attach", optional("received", &keeper::Attach::received));
template <>
inline constexpr auto kMessage<keeper::Received> = message("received", required("count", &keeper::Received::count));
template <>
inline constexpr auto kMessage<keeper::AgentEnds> = message("agent_ends");

template <>
inline constexpr auto kMessage<keeper::Started> = message("started", optional("pid", &keeper::Started::pid),
                                                          optional("received", &keeper::Started::received));
template <>
inline constexpr auto kMessage<keeper::ForkServerReady> = message(
    "fork_server_ready", optional("pid", &keeper::ForkServerReady::pid),
    optional("start_s", &keeper::ForkServerReady::start_s), optional("threads", &keeper::ForkServerReady::threads),
    optional("can_fork", &keeper::ForkServerReady::can_fork));
template <>
inline constexpr auto kMessage<keeper::ForkServerFailed> = message(
    "fork_server_failed", optional("exit_code", &keeper::ForkServerFailed::exit_code),
    optional("signal", &keeper::ForkServerFailed::signal), optional("message", &keeper::ForkServerFailed::message));
template <>
inline constexpr auto kMessage<keeper::Spawned> = message("spawned",
                                                          required("generation", &keeper::Spawned::generation),
                                                          required("rank", &keeper::Spawned::rank),
                                                          required("pid", &keeper::Spawned::pid));
template <>
inline constexpr auto kMessage<keeper::SpawnFailed> = message("spawn_failed",
                                                              required("generation", &keeper::SpawnFailed::generation),
                                                              required("rank", &keeper::SpawnFailed::rank),
                                                              optional("error", &keeper::SpawnFailed::error),
                                                              optional("message", &keeper::SpawnFailed::message));
template <>
inline constexpr auto kMessage<keeper::Exited> =
    message("exited", required("generation", &keeper::Exited::generation), required("rank", &keeper::Exited::rank),
            optional("pid", &keeper::Exited::pid), optional("exit_code", &keeper::Exited::exit_code),
            optional("signal", &keeper::Exited::signal), optional("core_dumped", &keeper::Exited::core_dumped),
            optional("sequence", &keeper::Exited::sequence), optional("detected_s", &keeper::Exited::detected_s),
            optional("tail", &keeper::Exited::tail), optional("reason", &keeper::Exited::reason));
template <>
inline constexpr auto kMessage<keeper::Cleared> = message("cleared",
                                                          required("generation", &keeper::Cleared::generation),
                                                          optional("killed", &keeper::Cleared::killed));
template <>
inline constexpr auto kMessage<keeper::OutputDropped> = message("output_dropped",
                                                                required("rank", &keeper::OutputDropped::rank),
                                                                optional("lines", &keeper::OutputDropped::lines),
                                                                optional("bytes", &keeper::OutputDropped::bytes),
                                                                optional("reason", &keeper::OutputDropped::reason));

}  // namespace sgd::codec

namespace sgd::keeper {

std::string encode(const ToKeeper& message) {
  return encode_frame(FrameKind::kJson, codec::print(codec::write_variant(message)));
}

std::string encode(const FromKeeper& message) {
  return encode_frame(FrameKind::kJson, codec::print(codec::write_variant(message)));
}

bool is_counted(const ToKeeper& message) {
  return !std::holds_alternative<OutputAck>(message) && !std::holds_alternative<Attach>(message) &&
         !std::holds_alternative<Received>(message) && !std::holds_alternative<AgentEnds>(message);
}

bool is_counted(const FromKeeper& message) {
  return !std::holds_alternative<Started>(message) && !std::holds_alternative<OutputDropped>(message) &&
         !std::holds_alternative<Received>(message);
}

Result<ToKeeper> decode_to_keeper(std::string_view text) {
  return codec::decode<ToKeeper>(text);
}

Result<FromKeeper> decode_from_keeper(std::string_view text) {
  return codec::decode<FromKeeper>(text);
}

}  // namespace sgd::keeper

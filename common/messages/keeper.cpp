// Keys and type names of the keeper's protocol, and its messages as JSON frames.

#include "common/messages/keeper.hpp"

#include "common/messages/codec.hpp"
#include "common/messages/frame.hpp"
#include "common/messages/rank_error_fields.hpp"

namespace sgd::codec {

template <>
inline constexpr auto kMessage<keeper::Environment> = message("", optional("set", &keeper::Environment::set),
                                                              optional("defaults", &keeper::Environment::defaults),
                                                              optional("appended", &keeper::Environment::appended));
template <>
inline constexpr auto kMessage<keeper::StartForkServer> =
    message("start_fork_server", required("argv", &keeper::StartForkServer::argv),
            optional("job", &keeper::StartForkServer::job), optional("log_path", &keeper::StartForkServer::log_path),
            optional("environment", &keeper::StartForkServer::environment),
            optional("workdir", &keeper::StartForkServer::workdir));
template <>
inline constexpr auto kMessage<keeper::StreamRules> = message(
    "", optional("is_shown", &keeper::StreamRules::is_shown), optional("path", &keeper::StreamRules::path),
    optional("filters", &keeper::StreamRules::filters), optional("filtered_path", &keeper::StreamRules::filtered_path));
template <>
inline constexpr auto kMessage<keeper::Spawn> =
    message("spawn", required("generation", &keeper::Spawn::generation), required("rank", &keeper::Spawn::rank),
            optional("fork_server", &keeper::Spawn::fork_server), optional("argv", &keeper::Spawn::argv),
            optional("environment", &keeper::Spawn::environment), optional("workdir", &keeper::Spawn::workdir),
            optional("cpus", &keeper::Spawn::cpus), optional("threads", &keeper::Spawn::threads),
            optional("log_path", &keeper::Spawn::log_path), optional("out", &keeper::Spawn::out),
            optional("err", &keeper::Spawn::err), optional("has_input", &keeper::Spawn::has_input),
            optional("has_terminal", &keeper::Spawn::has_terminal), optional("error_file", &keeper::Spawn::error_file),
            optional("line_prefix", &keeper::Spawn::line_prefix));
template <>
inline constexpr auto kMessage<keeper::Signal> = message("signal", required("generation", &keeper::Signal::generation),
                                                         required("rank", &keeper::Signal::rank),
                                                         required("signal", &keeper::Signal::signal),
                                                         optional("is_for_group", &keeper::Signal::is_for_group));
template <>
inline constexpr auto kMessage<keeper::SignalAll> = message("signal_all",
                                                            required("signal", &keeper::SignalAll::signal));
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
inline constexpr auto kMessage<keeper::AskErrors> = message("ask_errors",
                                                            required("generation", &keeper::AskErrors::generation));

template <>
inline constexpr auto kMessage<keeper::Started> = message("started", optional("pid", &keeper::Started::pid),
                                                          optional("received", &keeper::Started::received));
template <>
inline constexpr auto kMessage<keeper::ForkServerReady> = message(
    "fork_server_ready", optional("pid", &keeper::ForkServerReady::pid),
    optional("start_s", &keeper::ForkServerReady::start_s), optional("threads", &keeper::ForkServerReady::threads),
    optional("can_fork", &keeper::ForkServerReady::can_fork), optional("reason", &keeper::ForkServerReady::reason));
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
                                                              optional("message", &keeper::SpawnFailed::message),
                                                              optional("signal", &keeper::SpawnFailed::signal));
template <>
inline constexpr auto kMessage<keeper::Exited> =
    message("exited", required("generation", &keeper::Exited::generation), required("rank", &keeper::Exited::rank),
            optional("pid", &keeper::Exited::pid), optional("exit_code", &keeper::Exited::exit_code),
            optional("signal", &keeper::Exited::signal), optional("core_dumped", &keeper::Exited::core_dumped),
            optional("sequence", &keeper::Exited::sequence), optional("detected_s", &keeper::Exited::detected_s),
            optional("tail", &keeper::Exited::tail), optional("last_object", &keeper::Exited::last_object),
            optional("reason", &keeper::Exited::reason), optional("error", &keeper::Exited::error),
            optional("others", &keeper::Exited::others));
template <>
inline constexpr auto kMessage<keeper::Cleared> = message("cleared",
                                                          required("generation", &keeper::Cleared::generation),
                                                          optional("killed", &keeper::Cleared::killed));
template <>
inline constexpr auto kMessage<keeper::ErrorsSaid> = message("errors_said",
                                                             required("generation", &keeper::ErrorsSaid::generation),
                                                             optional("others", &keeper::ErrorsSaid::others));
template <>
inline constexpr auto kMessage<keeper::OutputDropped> = message(
    "output_dropped", required("rank", &keeper::OutputDropped::rank), optional("lines", &keeper::OutputDropped::lines),
    optional("bytes", &keeper::OutputDropped::bytes), optional("reason", &keeper::OutputDropped::reason),
    optional("is_on_console", &keeper::OutputDropped::is_on_console));

}  // namespace sgd::codec

namespace sgd::keeper {
namespace {

constexpr unsigned kOpenBit = 0x80;

}  // namespace

std::string encode(const OutputHead& head) {
  std::string bytes;
  const auto put = [&bytes](std::uint64_t value, int bits) {
    for (int shift = bits - 8; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(value >> shift & 0xff));
  };
  put(static_cast<std::uint32_t>(head.generation), 32);
  put(static_cast<std::uint32_t>(head.rank), 32);
  put(head.keeper, 64);
  put(head.end, 64);
  bytes.push_back(static_cast<char>(static_cast<unsigned>(head.stream) | (head.is_open ? kOpenBit : 0)));
  return bytes;
}

Result<OutputHead> decode_output_head(std::string_view chunk) {
  if (chunk.size() < kOutputHeaderBytes) return Error{"output without a header"};
  const auto get = [&chunk](std::size_t at, std::size_t bytes) {
    std::uint64_t value = 0;
    for (std::size_t i = at; i < at + bytes; ++i) value = value << 8 | static_cast<unsigned char>(chunk[i]);
    return value;
  };
  OutputHead head;
  head.generation = get(0, 4);
  head.rank = static_cast<Rank>(get(4, 4));
  head.keeper = get(8, 8);
  head.end = get(16, 8);
  const unsigned last = static_cast<unsigned char>(chunk[kOutputHeaderBytes - 1]);
  const unsigned stream = last & ~kOpenBit;
  if (stream > static_cast<unsigned>(Stream::kErr))
    return Error{"output of the unknown stream " + std::to_string(stream)};
  head.stream = static_cast<Stream>(stream);
  head.is_open = (last & kOpenBit) != 0;
  return head;
}

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

// Keys and type names of the fork server's protocol; one datagram is one JSON text.

#include "common/messages/fork_server.hpp"

#include "common/messages/codec.hpp"

namespace sgd::codec {

template <>
inline constexpr auto kMessage<fork_server::Prepare> = message("prepare", required("job", &fork_server::Prepare::job));
template <>
inline constexpr auto kMessage<fork_server::Fork> =
    message("fork", required("generation", &fork_server::Fork::generation), required("rank", &fork_server::Fork::rank),
            required("keeper_pid", &fork_server::Fork::keeper_pid), optional("env", &fork_server::Fork::env),
            optional("cpus", &fork_server::Fork::cpus), optional("threads", &fork_server::Fork::threads),
            optional("argv", &fork_server::Fork::argv));

template <>
inline constexpr auto kMessage<fork_server::Prepared> = message("prepared",
                                                                optional("threads", &fork_server::Prepared::threads),
                                                                optional("reason", &fork_server::Prepared::reason));
template <>
inline constexpr auto kMessage<fork_server::PrepareFailed> =
    message("prepare_failed", optional("exit_code", &fork_server::PrepareFailed::exit_code),
            optional("message", &fork_server::PrepareFailed::message));
template <>
inline constexpr auto kMessage<fork_server::Forked> = message("forked",
                                                              required("generation", &fork_server::Forked::generation),
                                                              required("rank", &fork_server::Forked::rank),
                                                              required("pid", &fork_server::Forked::pid));
template <>
inline constexpr auto kMessage<fork_server::ForkFailed> =
    message("fork_failed", required("generation", &fork_server::ForkFailed::generation),
            required("rank", &fork_server::ForkFailed::rank), optional("error", &fork_server::ForkFailed::error),
            optional("message", &fork_server::ForkFailed::message));

}  // namespace sgd::codec

namespace sgd::fork_server {

std::string encode(const ToForkServer& message) {
  return codec::print(codec::write_variant(message));
}

std::string encode(const FromForkServer& message) {
  return codec::print(codec::write_variant(message));
}

Result<ToForkServer> decode_to_fork_server(std::string_view json) {
  return codec::decode<ToForkServer>(json);
}

Result<FromForkServer> decode_from_fork_server(std::string_view json) {
  return codec::decode<FromForkServer>(json);
}

}  // namespace sgd::fork_server

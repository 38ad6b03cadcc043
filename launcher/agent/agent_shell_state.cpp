#include "launcher/agent/agent_shell_state.hpp"

#include "common/messages/state_codec.hpp"

namespace sgd::codec {

template <>
inline constexpr auto kMessage<agent::KeptKeeper> = message("", required("number", &agent::KeptKeeper::number),
                                                            required("was_started", &agent::KeptKeeper::was_started),
                                                            required("received", &agent::KeptKeeper::received),
                                                            required("sent", &agent::KeptKeeper::sent),
                                                            required("kept", &agent::KeptKeeper::kept));
template <>
inline constexpr auto kMessage<agent::KeptLink> =
    message("", required("run", &agent::KeptLink::run), required("token", &agent::KeptLink::token),
            required("peer_pid", &agent::KeptLink::peer_pid), required("returns", &agent::KeptLink::returns),
            required("is_paused", &agent::KeptLink::is_paused), required("received", &agent::KeptLink::received),
            required("sent", &agent::KeptLink::sent), required("kept", &agent::KeptLink::kept));
template <>
inline constexpr auto kMessage<agent::AgentShellState> = message(
    "", required("keepers_made", &agent::AgentShellState::keepers_made),
    required("next_link", &agent::AgentShellState::next_link), required("keepers", &agent::AgentShellState::keepers),
    required("links", &agent::AgentShellState::links), required("link_paths", &agent::AgentShellState::link_paths),
    required("remotes", &agent::AgentShellState::remotes));

}  // namespace sgd::codec

namespace sgd::agent {

storage::StateRow encode(const AgentShellState& shell_state) {
  return {"books", "", codec::print(codec::write(shell_state))};
}

Result<AgentShellState> decode_shell_state(const storage::StateRow& row) {
  const auto json = codec::parse_object(row.text, codec::kDepthMax);
  if (!json) return Error{"books: " + json.error().message};
  AgentShellState shell_state;
  if (const Status status = codec::read(json.value(), "books", shell_state); !status) return status.error();
  return shell_state;
}

}  // namespace sgd::agent

#pragma once
// A link between coordinator and agent over TCP. The agent's end dials and dials again; the coordinator's end is a
// session whose first message has said which node it is.

#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "launcher/net/agent_link.hpp"
#include "launcher/net/connection.hpp"
#include "launcher/net/dialer.hpp"
#include "launcher/net/gateway.hpp"

namespace sgd::net {

/// `io` and `buffer` must outlive the link. `tls` null: plain text.
[[nodiscard]] std::unique_ptr<AgentLink> make_tcp_agent_link(boost::asio::io_context& io, ReadBuffer& buffer,
                                                             Address coordinator, core::Random random,
                                                             std::shared_ptr<const TlsContext> tls = nullptr);

/// What a Gateway does with an agent, a session of the kind "node_state": the link's first message, that NodeState,
/// comes after its start(). `on_refused`: it does not name its node, or not its own.
inline constexpr const char* kAgentKind = "node_state";
[[nodiscard]] Gateway::OnSession serve_agents(
    boost::asio::io_context& io,
    std::function<void(const NodeId& node, std::unique_ptr<CoordinatorLink> link)> on_agent,
    std::function<void(const std::string& peer, const Refusal& refusal)> on_refused);

}  // namespace sgd::net

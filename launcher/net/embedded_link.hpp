#pragma once
// Both ends of a link in one process. A message is delivered by the event loop, never inside
// send(): a decision never runs inside another decision, exactly as over a socket.

#include <memory>
#include <utility>

#include <boost/asio/io_context.hpp>

#include "launcher/net/agent_link.hpp"

namespace sgd::net {

struct EmbeddedLink {
  std::unique_ptr<AgentLink> agent;
  std::unique_ptr<CoordinatorLink> coordinator;
};

/// `io` must outlive both ends.
[[nodiscard]] EmbeddedLink make_embedded_link(boost::asio::io_context& io);

}  // namespace sgd::net

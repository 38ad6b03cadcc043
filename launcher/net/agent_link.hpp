#pragma once
// The link between a coordinator and one agent, as both sides see it: messages go in order,
// arrive later than they were sent, and are the same structs whatever carries them. Handlers are
// never called inside start() or send().

#include <functional>
#include <memory>
#include <string>

#include "common/messages/cluster.hpp"

namespace sgd::net {

/// The agent's end. It outlives connections: a broken one is made again.
class AgentLink {
 public:
  struct Handlers {
    /// The coordinator can be reached, for the first time or again: what it needs to know is told anew.
    std::function<void()> on_connected;
    std::function<void(cluster::ToAgent)> on_message;
    /// The connection is gone; `reason` in words. Another one is being made.
    std::function<void(std::string reason)> on_lost;
  };
  virtual ~AgentLink() = default;
  virtual void start(Handlers handlers) = 0;
  /// Dropped while there is no connection.
  virtual void send(cluster::FromAgent message) = 0;
  /// The coordinator has refused this agent: its connection ends, and the next one is not made at once.
  virtual void on_refused(const std::string& reason) = 0;
  /// The IP address of this end of the connection; empty: there is none, or it has no such address.
  [[nodiscard]] virtual std::string local_address() const { return {}; }
};

/// One message to many agents.
struct SharedMessage {
  cluster::ToAgent message;
  std::shared_ptr<const std::string> frames = {};  ///< Made by the first link that needs them, for all.
};

/// The coordinator's end of one connection.
class CoordinatorLink {
 public:
  struct Handlers {
    std::function<void(cluster::FromAgent)> on_message;
    /// Once and last.
    std::function<void(std::string reason)> on_closed;
  };
  virtual ~CoordinatorLink() = default;
  virtual void start(Handlers handlers) = 0;
  virtual void send(cluster::ToAgent message) = 0;
  virtual void send(SharedMessage& message) = 0;
};

}  // namespace sgd::net

#pragma once
// The link between a coordinator and one agent, as both sides see it: messages go in order,
// arrive later than they were sent, and are the same structs whatever carries them.

#include <functional>

#include "common/messages/cluster.hpp"

namespace sgd::net {

/// The agent's end.
class AgentLink {
 public:
  virtual ~AgentLink() = default;
  virtual void send(cluster::FromAgent message) = 0;
  /// `handler` takes every message from the coordinator; set before connect().
  virtual void on_message(std::function<void(cluster::ToAgent)> handler) = 0;
};

/// The coordinator's end.
class CoordinatorLink {
 public:
  virtual ~CoordinatorLink() = default;
  virtual void send(cluster::ToAgent message) = 0;
  virtual void on_message(std::function<void(cluster::FromAgent)> handler) = 0;
};

}  // namespace sgd::net

#pragma once
// The connection between one agent and the coordinator, and the network under it. Messages are ordered
// within a connection; what is in flight when it breaks is lost. Either side notices a break at its own
// time; the agent connects anew. A direction that is blocked delays everything until it is open again, or
// until the agent, whose signs of life nobody acknowledges, gives the connection up.

#include <cstdint>
#include <deque>
#include <optional>

#include "common/messages/cluster.hpp"
#include "test/sim/channel.hpp"
#include "test/sim/world.hpp"

namespace sgd::sim {

class Cluster;
class Node;

class Wire {
 public:
  enum class Direction { kUp, kDown };  ///< To the coordinator, to the agent.

  Wire(World& world, Node& node, Cluster& cluster);

  /// The agent wants a connection.
  void connect_soon();
  /// The agent's process has ended; `says_so`: the coordinator's end is closed.
  void lose_agent(bool says_so);
  /// The coordinator's process has ended; the agent notices at its own time.
  void lose_coordinator();
  void send_up(cluster::FromAgent message);
  /// Without `link`: for whatever agent is at the other end.
  void send_down(cluster::ToAgent message, std::optional<core::LinkNumber> link);
  /// The coordinator has read the first message of the next connection: its answers go there from now on.
  void note_accepted(core::LinkNumber link);
  /// It has, and does not take it.
  void note_refused();

  /// The coordinator closes the newest connection: its agent is not this node's, or no longer.
  void refuse();
  void break_now();
  void partition(Direction direction, Duration duration);
  /// The agent believes that it is connected.
  [[nodiscard]] bool is_open() const { return agent_open_; }
  [[nodiscard]] TimePoint healthy_since() const { return healthy_since_; }
  /// The agent can be reached, and can answer.
  [[nodiscard]] bool is_healthy() const {
    return agent_open_ && coordinator_open_ && !dead_ && !blocked_up_ && !blocked_down_;
  }

 private:
  void connect();
  void receive_up(cluster::FromAgent&& message);
  void receive_down(cluster::ToAgent&& message);
  void die();
  void agent_notices(Duration delay);
  void coordinator_notices(Duration delay);
  void heal(Direction direction);
  [[nodiscard]] Duration latency();
  [[nodiscard]] bool blocked() const { return blocked_up_ || blocked_down_; }

  World& world_;
  Node& node_;
  Cluster& cluster_;
  Channel<cluster::FromAgent> up_;
  Channel<cluster::ToAgent> down_;
  std::uint64_t connection_ = 0;
  std::uint64_t accepted_ = 0;          ///< The one that the coordinator speaks over.
  core::LinkNumber accepted_link_ = 0;  ///< Its number there.
  std::deque<std::uint64_t> arrived_;   ///< Whose first messages it has not read yet.
  std::uint64_t attempt_ = 0;           ///< To connect.
  bool agent_open_ = false;             ///< The agent believes that it is connected.
  bool coordinator_open_ = false;
  bool dead_ = true;  ///< Nothing passes any more.
  bool blocked_up_ = false;
  bool blocked_down_ = false;
  TimePoint healthy_since_{};
};

}  // namespace sgd::sim

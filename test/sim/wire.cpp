#include "test/sim/wire.hpp"

#include "common/messages/frame.hpp"
#include "test/sim/cluster.hpp"
#include "test/sim/node.hpp"

namespace sgd::sim {

using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

/// As the other side reads it.
template <class Message, class Decode>
Message over_bytes(const Message& message, Decode decode) {
  const std::string text = cluster::encode(message);
  if (text.size() > kMessageBytesMax) violated("a message of {} bytes", text.size());
  auto read = decode(text);
  if (!read) violated("a message cannot be read: {}", read.error().message);
  return std::move(read).value();
}

}  // namespace

Wire::Wire(World& world, Node& node, Cluster& cluster)
    : world_(world),
      node_(node),
      cluster_(cluster),
      up_(world.queue, [this](cluster::FromAgent&& message) { receive_up(std::move(message)); }),
      down_(world.queue, [this](cluster::ToAgent&& message) { receive_down(std::move(message)); }) {}

Duration Wire::latency() {
  const Duration typical = world_.plan.latency;
  if (world_.chance.with(0.01)) return world_.chance.between(typical, typical + milliseconds(800));
  return world_.chance.between(typical / 2, typical * 3 / 2);
}

// ---- opening and messages ----

void Wire::connect_soon() {
  const Duration delay = world_.chance.spread_between(milliseconds(20), seconds(3));
  world_.queue.after(delay, [this, attempt = ++attempt_] {
    if (attempt == attempt_) connect();
  });
}

void Wire::connect() {
  if (!node_.is_up() || agent_open_) return;
  if (blocked() || node_.paused() || !cluster_.coordinator_alive()) return connect_soon();
  up_.cut();
  down_.cut();
  // The coordinator's shell learns of the old connection's end now at the latest, and may say so or not.
  if (coordinator_open_ && world_.chance.with(0.5)) {
    cluster_.tell(core::coordinator_event::AgentClosed{node_.id()});
    if (!cluster_.coordinator_alive()) return connect_soon();
  }
  ++connection_;
  agent_open_ = coordinator_open_ = true;
  dead_ = false;
  healthy_since_ = world_.queue.now();
  world_.say("{}: connected", node_.id());
  node_.tell(core::agent_event::Connected{});
}

void Wire::send_up(cluster::FromAgent message) {
  if (!agent_open_ || dead_) return;
  if (world_.plan.has_bytes) message = over_bytes(message, cluster::decode_from_agent);
  up_.send(std::move(message), latency());
}

void Wire::send_down(cluster::ToAgent message, std::optional<core::LinkNumber> link) {
  if (!coordinator_open_ || dead_ || accepted_ != connection_) return;
  if (link && link != accepted_link_) return;
  if (world_.plan.has_bytes) message = over_bytes(message, cluster::decode_to_agent);
  down_.send(std::move(message), latency());
}

void Wire::receive_up(cluster::FromAgent&& message) {
  if (!coordinator_open_) return;
  const auto* state = std::get_if<cluster::NodeState>(&message);
  if (state != nullptr && state->is_new_link) arrived_.push_back(connection_);
  cluster_.tell(core::coordinator_event::FromAgent{node_.id(), std::move(message)});
}

void Wire::receive_down(cluster::ToAgent&& message) {
  if (agent_open_) node_.tell(core::agent_event::FromCoordinator{std::move(message)});
}

void Wire::note_accepted(core::LinkNumber link) {
  accepted_ = arrived_.front();
  accepted_link_ = link;
  arrived_.pop_front();
}

void Wire::note_refused() {
  arrived_.pop_front();
}

// ---- ends ----

void Wire::lose_coordinator() {
  arrived_.clear();
  if (!coordinator_open_) return;
  coordinator_open_ = false;
  die();
  agent_notices(world_.chance.spread_between(milliseconds(1), seconds(3)));
}

void Wire::die() {
  dead_ = true;
  up_.cut();
  down_.cut();
}

void Wire::agent_notices(Duration delay) {
  world_.queue.after(delay, [this, connection = connection_] {
    if (connection != connection_ || !agent_open_) return;
    agent_open_ = false;
    world_.say("{}: agent notices that its link is closed", node_.id());
    node_.tell(core::agent_event::Disconnected{});
    connect_soon();
  });
}

void Wire::coordinator_notices(Duration delay) {
  world_.queue.after(delay, [this, connection = connection_] {
    if (connection != connection_ || !coordinator_open_) return;
    coordinator_open_ = false;
    world_.say("{}: coordinator notices that its link is closed", node_.id());
    cluster_.tell(core::coordinator_event::AgentClosed{node_.id()});
  });
}

void Wire::lose_agent(bool says_so) {
  die();
  ++attempt_;
  agent_open_ = false;
  if (says_so && !blocked_up_ && world_.chance.with(0.8)) coordinator_notices(latency());
}

void Wire::refuse() {
  die();
  coordinator_open_ = false;
  agent_notices(latency());
}

void Wire::break_now() {
  if (dead_) return;
  world_.say("{}: link breaks", node_.id());
  die();
  agent_notices(world_.chance.between(milliseconds(1), world_.chance.with(0.5) ? milliseconds(100) : seconds(6)));
  if (world_.chance.with(0.6)) coordinator_notices(world_.chance.spread_between(milliseconds(1), seconds(4)));
}

void Wire::partition(Direction direction, Duration duration) {
  if (dead_ || blocked()) return;
  const bool is_up = direction == Direction::kUp;
  world_.say("{}: nothing goes {} for {:.1f} s", node_.id(), is_up ? "up" : "down", to_seconds(duration));
  (is_up ? blocked_up_ : blocked_down_) = true;
  if (is_up) up_.hold();
  if (!is_up) down_.hold();
  world_.queue.after(duration, [this, direction] { heal(direction); });
  world_.queue.after(world_.chance.between(seconds(5), seconds(8)), [this, connection = connection_] {
    if (connection != connection_ || dead_ || !blocked()) return;
    const bool coordinator_hears = !blocked_up_;
    die();
    agent_notices(Duration{0});
    if (coordinator_hears) coordinator_notices(latency());
  });
}

void Wire::heal(Direction direction) {
  (direction == Direction::kUp ? blocked_up_ : blocked_down_) = false;
  healthy_since_ = world_.queue.now();
  up_.release();
  down_.release();
}

}  // namespace sgd::sim

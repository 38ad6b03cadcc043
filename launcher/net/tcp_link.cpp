#include "launcher/net/tcp_link.hpp"

#include <utility>
#include <vector>

#include <boost/asio/post.hpp>
#include <fmt/format.h>

namespace sgd::net {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

template <class Message>
void send_over(const std::weak_ptr<Connection>& to, const Message& message) {
  const std::shared_ptr<Connection> connection = to.lock();
  if (!connection || !connection->is_open()) return;
  if (const Status sent = connection->send(FrameKind::kJson, cluster::encode(message)); !sent)
    connection->close(sent.error().message);
}

/// Connections hold this, not the link, so that one may go in a handler of the other.
struct AgentEnd {
  AgentLink::Handlers handlers;
  std::weak_ptr<Connection> connection;
  Dialer* dialer = nullptr;  ///< Null: the link is gone.
};

class TcpAgentLink : public AgentLink {
 public:
  TcpAgentLink(asio::io_context& io, ReadBuffer& buffer, Address coordinator, core::Random random)
      : buffer_(buffer), dialer_(io, std::move(coordinator), random) {}
  ~TcpAgentLink() override {
    end_->dialer = nullptr;
    if (const auto connection = end_->connection.lock()) connection->abandon("the agent ends");
  }

  void start(Handlers handlers) override {
    end_->handlers = std::move(handlers);
    end_->dialer = &dialer_;
    dialer_.start({[this](tcp::socket socket) { talk(std::move(socket)); },
                   [end = end_](const std::string& reason) {
                     if (end->handlers.on_lost) end->handlers.on_lost(reason);
                   }});
  }
  void send(cluster::FromAgent message) override { send_over(end_->connection, message); }

 private:
  void talk(tcp::socket socket) {
    const auto connection = std::make_shared<Connection>(std::move(socket), buffer_);
    end_->connection = connection;
    Connection::Handlers handlers;
    const auto was_open = std::make_shared<bool>(false);
    handlers.on_open = [end = end_, was_open](int) {
      *was_open = true;
      end->handlers.on_connected();
    };
    handlers.on_frame = [end = end_](const Frame& frame) {
      Result<cluster::ToAgent> message = cluster::decode_to_agent(frame.bytes);
      if (message) return end->handlers.on_message(std::move(message).value());
      if (const auto open = end->connection.lock()) open->close("a message of the coordinator: " + message.error().message);
    };
    handlers.on_closed = [end = end_, was_open](const std::string& reason) {
      if (end->dialer == nullptr) return;
      end->dialer->again(*was_open);
      if (end->handlers.on_lost) end->handlers.on_lost(reason);
    };
    connection->start(std::move(handlers));
  }

  ReadBuffer& buffer_;
  std::shared_ptr<AgentEnd> end_ = std::make_shared<AgentEnd>();
  Dialer dialer_;
};

}  // namespace

std::unique_ptr<AgentLink> make_tcp_agent_link(asio::io_context& io, ReadBuffer& buffer, Address coordinator,
                                               core::Random random) {
  return std::make_unique<TcpAgentLink>(io, buffer, std::move(coordinator), random);
}

// ---- the coordinator's side ----

/// One connection: a stranger's until its first message, then a link's.
struct AgentDoor::Visit {
  explicit Visit(asio::io_context& io) : deadline(io) {}

  AgentDoor* door = nullptr;              ///< While it is a stranger's.
  std::weak_ptr<Connection> connection;
  asio::steady_timer deadline;            ///< For the first message.
  CoordinatorLink::Handlers handlers;
  std::vector<cluster::FromAgent> early;  ///< Until the link is started.
  std::string closed_for;                 ///< Closed before the link was started.
  bool is_started = false;
  bool is_dropped = false;                ///< The link is gone.

  void close(std::string reason) const {
    if (const auto open = connection.lock()) open->close(std::move(reason));
  }
};

class AgentDoor::Link : public CoordinatorLink {
 public:
  Link(asio::io_context& io, std::shared_ptr<Visit> visit) : io_(io), visit_(std::move(visit)) {}
  ~Link() override {
    visit_->is_dropped = true;
    if (const auto open = visit_->connection.lock()) open->abandon("the coordinator lets it go");
  }

  void start(Handlers handlers) override {
    visit_->handlers = std::move(handlers);
    asio::post(io_, [visit = visit_] {
      visit->is_started = true;
      for (cluster::FromAgent& message : std::exchange(visit->early, {}))
        if (!visit->is_dropped) visit->handlers.on_message(std::move(message));
      if (!visit->closed_for.empty() && !visit->is_dropped) visit->handlers.on_closed(visit->closed_for);
    });
  }
  void send(cluster::ToAgent message) override { send_over(visit_->connection, message); }

 private:
  asio::io_context& io_;
  std::shared_ptr<Visit> visit_;
};

AgentDoor::AgentDoor(asio::io_context& io, std::unique_ptr<Listener> listener)
    : io_(io), listener_(std::move(listener)) {}

AgentDoor::~AgentDoor() {
  for (const std::shared_ptr<Visit>& visit : strangers_) {
    visit->deadline.cancel();
    if (const auto open = visit->connection.lock()) open->abandon("the coordinator ends");
  }
}

void AgentDoor::start(Handlers handlers) {
  handlers_ = std::move(handlers);
  listener_->start([this](tcp::socket socket) { take(std::move(socket)); });
}

void AgentDoor::take(tcp::socket socket) {
  const auto connection = std::make_shared<Connection>(std::move(socket), buffer_);
  if (strangers_.size() >= kStrangersMax)
    return handlers_.on_refused(connection->peer(), fmt::format("{} others have not said who they are", kStrangersMax));
  const auto visit = std::make_shared<Visit>(io_);
  visit->door = this;
  visit->connection = connection;
  strangers_.insert(visit);
  Connection::Handlers handlers;
  handlers.on_open = [visit](int) {
    visit->deadline.expires_after(kFirstMessage);
    visit->deadline.async_wait([visit](const boost::system::error_code& error) {
      if (!error) visit->close(fmt::format("no message within {}", format_duration(kFirstMessage)));
    });
  };
  handlers.on_frame = [visit](const Frame& frame) {
    if (visit->is_dropped) return;
    Result<cluster::FromAgent> message = cluster::decode_from_agent(frame.bytes);
    if (!message) return visit->close("a message of an agent: " + message.error().message);
    if (visit->is_started) return visit->handlers.on_message(std::move(message).value());
    if (visit->door == nullptr) return visit->early.push_back(std::move(message).value());
    visit->door->on_message(visit, std::move(message).value());
  };
  handlers.on_closed = [visit, peer = connection->peer()](const std::string& reason) {
    visit->deadline.cancel();
    if (AgentDoor* door = std::exchange(visit->door, nullptr)) {
      door->strangers_.erase(visit);
      return door->handlers_.on_refused(peer, reason);
    }
    if (visit->is_started) return visit->handlers.on_closed(reason);
    visit->closed_for = reason;
  };
  connection->start(std::move(handlers));
}

/// A stranger's first message.
void AgentDoor::on_message(const std::shared_ptr<Visit>& visit, cluster::FromAgent message) {
  const auto* state = std::get_if<cluster::NodeState>(&message);
  if (state == nullptr || state->node.empty()) return visit->close("the first message does not say which node it is");
  const NodeId node = state->node;
  visit->deadline.cancel();
  visit->door = nullptr;
  visit->early.push_back(std::move(message));
  strangers_.erase(visit);
  handlers_.on_agent(node, std::make_unique<Link>(io_, visit));
}

}  // namespace sgd::net

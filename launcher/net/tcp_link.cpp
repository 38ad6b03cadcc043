#include "launcher/net/tcp_link.hpp"

#include <utility>

#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include "launcher/core/claims.hpp"
#include "launcher/net/admission.hpp"

namespace sgd::net {

namespace asio = boost::asio;

namespace {

/// An agent waits for its turn behind all the others that come back with it.
ConnectionLimits patient() {
  ConnectionLimits limits;
  limits.hello = std::chrono::seconds(20);
  return limits;
}

template <class Message>
void send_over(const std::weak_ptr<Connection>& to, const Message& message) {
  const std::shared_ptr<Connection> connection = to.lock();
  if (!connection || !connection->is_open()) return;
  if (const Status sent = connection->send(FrameKind::kJson, cluster::encode(message)); !sent)
    connection->close(sent.error().message);
}

/// Connections hold this, not the link, so that one may go in a handler of the other.
struct TcpAgentEnd {
  AgentLink::Handlers handlers;
  std::weak_ptr<Connection> connection;
  Dialer* dialer = nullptr;  ///< Null: the link is gone.
  bool is_refused = false;   ///< Over the newest connection, whose next one comes as after a failure.
};

class TcpAgentLink : public AgentLink {
 public:
  TcpAgentLink(asio::io_context& io, ReadBuffer& buffer, Address coordinator, core::Random random,
               std::shared_ptr<const TlsContext> tls)
      : buffer_(buffer),
        security_(dialling(coordinator, std::move(tls))),
        dialer_(io, std::move(coordinator), random) {}
  ~TcpAgentLink() override {
    end_->dialer = nullptr;
    if (const auto connection = end_->connection.lock()) connection->abandon("the agent ends");
  }

  void start(Handlers handlers) override {
    end_->handlers = std::move(handlers);
    end_->dialer = &dialer_;
    dialer_.start({[this](Socket socket) { talk(std::move(socket)); },
                   [end = end_](const std::string& reason) {
                     if (end->handlers.on_lost) end->handlers.on_lost(reason);
                   }});
  }
  void send(cluster::FromAgent message) override { send_over(end_->connection, message); }
  void on_refused(const std::string& reason) override {
    end_->is_refused = true;
    if (const auto open = end_->connection.lock()) open->close("refused: " + reason);
  }
  [[nodiscard]] std::string local_address() const override {
    const auto connection = end_->connection.lock();
    return connection && connection->is_open() ? connection->local_address() : std::string();
  }

 private:
  void talk(Socket socket) {
    const auto connection = std::make_shared<Connection>(std::move(socket), buffer_, security_, patient());
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
      if (const auto open = end->connection.lock())
        open->close("a message of the coordinator: " + message.error().message);
    };
    handlers.on_closed = [end = end_, was_open](const std::string& reason) {
      if (end->dialer == nullptr) return;
      end->dialer->again(*was_open && !std::exchange(end->is_refused, false));
      if (end->handlers.on_lost) end->handlers.on_lost(reason);
    };
    connection->start(std::move(handlers));
  }

  ReadBuffer& buffer_;
  Security security_;
  std::shared_ptr<TcpAgentEnd> end_ = std::make_shared<TcpAgentEnd>();
  Dialer dialer_;
};

}  // namespace

std::unique_ptr<AgentLink> make_tcp_agent_link(asio::io_context& io, ReadBuffer& buffer, Address coordinator,
                                               core::Random random, std::shared_ptr<const TlsContext> tls) {
  return std::make_unique<TcpAgentLink>(io, buffer, std::move(coordinator), random, std::move(tls));
}

// ---- the coordinator's side ----

namespace {

class TcpCoordinatorLink : public CoordinatorLink {
 public:
  TcpCoordinatorLink(asio::io_context& io, std::unique_ptr<Session> session, cluster::FromAgent first)
      : io_(io), end_(std::make_shared<End>(std::move(session), std::move(first))) {}
  ~TcpCoordinatorLink() override { end_->session.reset(); }

  void start(Handlers handlers) override {
    end_->handlers = std::move(handlers);
    asio::post(io_, [end = end_] {
      if (!end->session) return;
      const auto handlers_of = [&end](auto of) { return [end, of](auto&&... what) { of(*end, what...); }; };
      end->session->start({handlers_of([](End& at, const Frame& frame) { at.take(frame); }),
                           handlers_of([](End& at, const std::string& reason) { at.handlers.on_closed(reason); })});
      end->handlers.on_message(std::move(end->first));
    });
  }
  void send(cluster::ToAgent message) override {
    if (const Status sent = end_->session->send(FrameKind::kJson, cluster::encode(message)); !sent)
      end_->session->close(sent.error().message);
  }
  void send(SharedMessage& message) override {
    if (!message.frames) {
      std::string frames;
      for (const std::string& frame : encode_message(cluster::encode(message.message))) frames += frame;
      message.frames = std::make_shared<const std::string>(std::move(frames));
    }
    end_->session->send(message.frames);
  }

 private:
  /// Handlers hold this, not the link, so that the link may go in any of them.
  struct End {
    End(std::unique_ptr<Session> who, cluster::FromAgent said)
        : session(std::move(who)), first(std::move(said)), node(std::get<cluster::NodeState>(first).node) {}
    void take(const Frame& frame) {
      Result<cluster::FromAgent> message = cluster::decode_from_agent(frame.bytes);
      if (!message)
        return session->close("a message of an agent: " + message.error().message, RefusalKind::kBadMessage);
      const auto* state = std::get_if<cluster::NodeState>(&message.value());
      if (state != nullptr && state->node != node)
        return session->close(fmt::format("the agent of node {} speaks for {}", node, state->node),
                              RefusalKind::kWrongName);
      if (const std::string why = state == nullptr ? std::string() : core::why_not(*state); !why.empty())
        return session->close("a message of an agent: " + why, RefusalKind::kBadMessage);
      handlers.on_message(std::move(message).value());
    }
    std::unique_ptr<Session> session;  ///< Null: the link is gone.
    cluster::FromAgent first;
    NodeId node;
    Handlers handlers;
  };

  asio::io_context& io_;
  std::shared_ptr<End> end_;
};

}  // namespace

Gateway::OnSession serve_agents(asio::io_context& io,
                                std::function<void(const NodeId& node, std::unique_ptr<CoordinatorLink> link)> on_agent,
                                std::function<void(const std::string& peer, const Refusal& refusal)> on_refused) {
  return [&io, on_agent = std::move(on_agent), on_refused = std::move(on_refused)](std::unique_ptr<Session> session,
                                                                                   const nlohmann::json& first) {
    Result<cluster::FromAgent> message = cluster::decode_from_agent(first.dump());
    if (!message)
      return on_refused(session->peer(),
                        {RefusalKind::kBadMessage, "a message of an agent: " + message.error().message});
    const auto* state = std::get_if<cluster::NodeState>(&message.value());
    if (state == nullptr || state->node.empty())
      return on_refused(session->peer(), {RefusalKind::kBadMessage, "the first message does not say which node it is"});
    if (const std::string why = core::why_not(*state); !why.empty())
      return on_refused(session->peer(), {RefusalKind::kBadMessage, "a message of an agent: " + why});
    const NodeId node = state->node;
    if (session->is_secure()) {
      const std::string refusal = refusal_of_node(node, session->peer_identity());
      if (!refusal.empty()) return on_refused(session->peer(), {RefusalKind::kWrongName, refusal});
    }
    on_agent(node, std::make_unique<TcpCoordinatorLink>(io, std::move(session), std::move(message).value()));
  };
}

}  // namespace sgd::net

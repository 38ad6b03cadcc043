#include "launcher/net/client_link.hpp"

#include <utility>

namespace sgd::net {

namespace {

std::string dump(const nlohmann::ordered_json& message) {
  return message.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

/// Connections hold this, not the link, so that one may go in a handler of the other.
struct ClientLink::End {
  Handlers handlers;
  std::weak_ptr<Connection> connection;
  Dialer* dialer = nullptr;  ///< Null: the link is gone.

  void take(const Frame& frame) const {
    if (dialer == nullptr) return;
    if (frame.kind == FrameKind::kChunk) return handlers.on_chunk(frame.bytes);
    auto message = nlohmann::ordered_json::parse(frame.bytes, nullptr, false);
    if (!message.is_object()) {
      if (const auto open = connection.lock()) open->close("a message of the coordinator is no JSON object");
      return;
    }
    const auto type = message.find("type");
    if (type != message.end() && *type == "welcome") {
      if (handlers.on_welcome) handlers.on_welcome(message);
      return handlers.on_open();
    }
    if (type != message.end() && *type == "refused") {
      const auto why = message.find("error");
      const auto open = connection.lock();
      if (open) open->close(why != message.end() && why->is_string() ? why->get<std::string>() : "it refuses clients");
      return;
    }
    handlers.on_message(std::move(message));
  }
};

ClientLink::ClientLink(boost::asio::io_context& io, Address coordinator, core::Random random,
                       std::shared_ptr<const TlsContext> tls)
    : security_(dialling(coordinator, std::move(tls))),
      end_(std::make_shared<End>()),
      dialer_(io, std::move(coordinator), random) {}

ClientLink::~ClientLink() {
  end_->dialer = nullptr;
  if (const auto connection = end_->connection.lock()) connection->abandon("the client ends");
}

void ClientLink::start(Handlers handlers) {
  end_->handlers = std::move(handlers);
  end_->dialer = &dialer_;
  dialer_.start({[this](Socket socket) { talk(std::move(socket)); },
                 [end = end_](const std::string& reason) { end->handlers.on_lost(reason); }});
}

void ClientLink::talk(Socket socket) {
  const auto connection = std::make_shared<Connection>(std::move(socket), buffer_, security_);
  end_->connection = connection;
  const auto was_open = std::make_shared<bool>(false);
  Connection::Handlers handlers;
  handlers.on_open = [end = end_, was_open](int) {
    *was_open = true;
    const auto open = end->connection.lock();
    if (open) (void)open->send(FrameKind::kJson, dump({{"type", "client"}, {"version", SGD_VERSION}}));
  };
  handlers.on_frame = [end = end_](const Frame& frame) { end->take(frame); };
  handlers.on_closed = [end = end_, was_open](const std::string& reason) {
    if (end->dialer == nullptr) return;
    end->dialer->again(*was_open);
    end->handlers.on_lost(reason);
  };
  connection->start(std::move(handlers));
}

void ClientLink::send(const nlohmann::ordered_json& message) {
  const auto open = end_->connection.lock();
  if (!open || !open->is_open()) return;
  if (const Status sent = open->send(FrameKind::kJson, dump(message)); !sent) open->close(sent.error().message);
}

void ClientLink::send(const nlohmann::ordered_json& message, std::string_view bytes) {
  send(message);
  const auto open = end_->connection.lock();
  if (!open || !open->is_open() || bytes.empty()) return;
  if (const Status sent = open->send(FrameKind::kChunk, bytes); !sent) open->close(sent.error().message);
}

}  // namespace sgd::net

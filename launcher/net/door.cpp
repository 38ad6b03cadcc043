#include "launcher/net/door.hpp"

#include <utility>
#include <vector>

#include <boost/asio/post.hpp>
#include <fmt/format.h>

#include "common/messages/codec.hpp"
#include "launcher/net/admission.hpp"

namespace sgd::net {

namespace asio = boost::asio;
using asio::ip::tcp;

/// One connection: a stranger's until its first message, then a visitor's.
struct Visitor::Visit {
  explicit Visit(asio::io_context& loop) : io(loop), deadline(loop) {}

  void close(std::string reason) const {
    if (const auto open = connection.lock()) open->close(std::move(reason));
  }
  void on_frame(Frame frame) {
    if (is_dropped) return;
    if (is_started) return handlers.on_frame(std::move(frame));
    early.push_back(std::move(frame));
  }
  void on_closed(const std::string& reason) {
    if (is_dropped) return;
    if (is_started) return handlers.on_closed(reason);
    closed_for = reason;
  }

  asio::io_context& io;
  Door* door = nullptr;  ///< While it is a stranger's.
  std::weak_ptr<Connection> connection;
  std::string peer;
  PeerIdentity identity;        ///< From the first message on.
  bool is_secure = false;
  asio::steady_timer deadline;  ///< For the first message.
  Handlers handlers;
  std::vector<Frame> early;     ///< Until the visitor is started.
  std::string closed_for;       ///< Closed before that.
  bool is_started = false;
  bool is_dropped = false;      ///< The visitor is gone.
};

// ---- a visitor ----

Visitor::Visitor(std::shared_ptr<Visit> visit) : visit_(std::move(visit)) {}

Visitor::~Visitor() {
  visit_->is_dropped = true;
  if (const auto open = visit_->connection.lock()) open->abandon("this side lets it go");
}

void Visitor::start(Handlers handlers) {
  visit_->handlers = std::move(handlers);
  asio::post(visit_->io, [visit = visit_] {
    visit->is_started = true;
    for (Frame& frame : std::exchange(visit->early, {}))
      if (!visit->is_dropped) visit->handlers.on_frame(std::move(frame));
    if (!visit->closed_for.empty() && !visit->is_dropped) visit->handlers.on_closed(visit->closed_for);
  });
}

Status Visitor::send(FrameKind kind, std::string_view bytes) {
  const auto open = visit_->connection.lock();
  return open && open->is_open() ? open->send(kind, bytes) : Status{};
}

void Visitor::close(std::string reason) { visit_->close(std::move(reason)); }

const std::string& Visitor::peer() const { return visit_->peer; }

const PeerIdentity& Visitor::peer_identity() const { return visit_->identity; }

bool Visitor::is_secure() const { return visit_->is_secure; }

// ---- the door ----

Door::Door(asio::io_context& io, std::unique_ptr<Listener> listener) : io_(io), listener_(std::move(listener)) {}

Door::~Door() {
  for (const std::shared_ptr<Visitor::Visit>& visit : strangers_) {
    visit->deadline.cancel();
    if (const auto open = visit->connection.lock()) open->abandon("this side ends");
  }
}

void Door::start(Handlers handlers) {
  handlers_ = std::move(handlers);
  if (!handlers_.on_refused) handlers_.on_refused = [](const std::string&, const std::string&) {};
  listener_->start([this](tcp::socket socket) { take(std::move(socket)); });
}

void Door::take(tcp::socket socket) {
  const auto connection = std::make_shared<Connection>(std::move(socket), buffer_, listener_->security());
  if (strangers_.size() >= kStrangersMax)
    return handlers_.on_refused(connection->peer(), fmt::format("{} others have not said who they are", kStrangersMax));
  const auto visit = std::make_shared<Visitor::Visit>(io_);
  visit->door = this;
  visit->connection = connection;
  visit->peer = connection->peer();
  strangers_.insert(visit);
  Connection::Handlers handlers;
  handlers.on_open = [visit](int) {
    visit->deadline.expires_after(kFirstMessage);
    visit->deadline.async_wait([visit](const boost::system::error_code& error) {
      if (!error) visit->close(fmt::format("no message within {}", format_duration(kFirstMessage)));
    });
  };
  handlers.on_frame = [visit](Frame frame) {
    if (visit->door != nullptr) return visit->door->on_first(visit, frame);
    visit->on_frame(std::move(frame));
  };
  handlers.on_closed = [visit](const std::string& reason) {
    visit->deadline.cancel();
    Door* door = std::exchange(visit->door, nullptr);
    if (door == nullptr) return visit->on_closed(reason);
    door->strangers_.erase(visit);
    door->handlers_.on_refused(visit->peer, reason);
  };
  connection->start(std::move(handlers));
}

/// A stranger's first message.
void Door::on_first(const std::shared_ptr<Visitor::Visit>& visit, const Frame& frame) {
  Result<nlohmann::json> parsed = Error{"no JSON"};
  if (frame.kind == FrameKind::kJson) parsed = codec::parse_object(frame.bytes, codec::kDepthMax);
  nlohmann::json first = parsed ? std::move(parsed).value() : nlohmann::json::object();
  const auto type = first.find("type");
  if (type == first.end() || !type->is_string())
    return visit->close("the first message does not say what kind of visitor it is");
  const auto kind = handlers_.kinds.find(type->get<std::string>());
  if (kind == handlers_.kinds.end()) return visit->close("the first message is of a kind that nobody here serves");
  if (const auto connection = visit->connection.lock(); connection && connection->is_secure()) {
    visit->is_secure = true;
    visit->identity = connection->peer_identity();
    const std::string refusal = refusal_of_visit(kind->first, visit->identity);
    if (!refusal.empty()) return visit->close(refusal);
  }
  visit->deadline.cancel();
  visit->door = nullptr;
  strangers_.erase(visit);
  kind->second(std::make_unique<Visitor>(visit), std::move(first));
}

}  // namespace sgd::net

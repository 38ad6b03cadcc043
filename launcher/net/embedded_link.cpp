#include "launcher/net/embedded_link.hpp"

#include <boost/asio/post.hpp>

namespace sgd::net {
namespace {

/// What the other end sends to; its handlers go with their end, and what is still on its way is dropped.
struct Inboxes {
  AgentLink::Handlers agent;
  CoordinatorLink::Handlers coordinator;
};

class AgentEnd : public AgentLink {
 public:
  AgentEnd(boost::asio::io_context& io, std::shared_ptr<Inboxes> inboxes) : io_(io), inboxes_(std::move(inboxes)) {}
  ~AgentEnd() override { inboxes_->agent = {}; }

  void start(Handlers handlers) override {
    inboxes_->agent = std::move(handlers);
    boost::asio::post(io_, [inboxes = inboxes_] {
      if (inboxes->agent.on_connected) inboxes->agent.on_connected();
    });
  }
  void send(cluster::FromAgent message) override {
    boost::asio::post(io_, [inboxes = inboxes_, message = std::move(message)]() mutable {
      if (inboxes->coordinator.on_message) inboxes->coordinator.on_message(std::move(message));
    });
  }
  void on_refused(const std::string&) override {}  ///< Of two agents of one process none is.

 private:
  boost::asio::io_context& io_;
  std::shared_ptr<Inboxes> inboxes_;
};

class CoordinatorEnd : public CoordinatorLink {
 public:
  CoordinatorEnd(boost::asio::io_context& io, std::shared_ptr<Inboxes> inboxes)
      : io_(io), inboxes_(std::move(inboxes)) {}
  ~CoordinatorEnd() override { inboxes_->coordinator = {}; }

  void start(Handlers handlers) override { inboxes_->coordinator = std::move(handlers); }
  void send(cluster::ToAgent message) override {
    boost::asio::post(io_, [inboxes = inboxes_, message = std::move(message)]() mutable {
      if (inboxes->agent.on_message) inboxes->agent.on_message(std::move(message));
    });
  }
  void send(SharedMessage& message) override { send(message.message); }

 private:
  boost::asio::io_context& io_;
  std::shared_ptr<Inboxes> inboxes_;
};

}  // namespace

EmbeddedLink make_embedded_link(boost::asio::io_context& io) {
  auto inboxes = std::make_shared<Inboxes>();
  return {std::make_unique<AgentEnd>(io, inboxes), std::make_unique<CoordinatorEnd>(io, inboxes)};
}

}  // namespace sgd::net

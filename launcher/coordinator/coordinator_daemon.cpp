#include "launcher/coordinator/coordinator_daemon.hpp"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "launcher/net/cluster_state.hpp"
#include "launcher/net/tcp_link.hpp"
#include "launcher/net/wall_clock.hpp"

namespace sgd::coordinator {
namespace {

constexpr Duration kRenewalLook = std::chrono::hours(24);

}  // namespace

CoordinatorDaemon::CoordinatorDaemon(CoordinatorOptions options)
    : options_(std::move(options)),
      shell_(io_, core::CoordinatorSettings{options_.node_timeout}),
      service_(shell_, options_.state_dir + "/runs", [this](const std::string& line) { log(line); }),
      signals_(io_, SIGINT, SIGTERM),
      renewal_(io_) {}

Status CoordinatorDaemon::open() {
  std::error_code error;
  std::filesystem::create_directories(options_.state_dir + "/runs", error);
  if (error) return Error{fmt::format("cannot create {}/runs: {}", options_.state_dir, error.message())};
  const Status store = shell_.open_store(
      options_.state_dir, {[this](const std::string& message) { log("error: " + message); },
                           [this] { log("the store takes events again"); }});
  if (!store) return store;
  auto tls = open_identity();
  if (!tls) return tls.error();
  auto listener = net::Listener::open(io_, options_.listen, std::move(tls).value());
  if (!listener) return listener.error();
  door_ = std::make_unique<net::Door>(io_, std::move(listener).value());
  return service_.restore();
}

/// Null without one: then only loopback is served.
Result<std::shared_ptr<const net::TlsContext>> CoordinatorDaemon::open_identity() {
  auto tls = net::TlsContext::load(net::coordinator_identity_folder(options_.state_dir));
  if (!tls && tls.error().code == ENOENT) return std::shared_ptr<const net::TlsContext>();
  if (!tls) return tls.error();
  renew_identity();
  auto desk = net::JoinDesk::open(io_, options_.state_dir);
  if (!desk) return desk.error();
  join_desk_ = std::move(desk).value();
  return tls;
}

void CoordinatorDaemon::renew_identity() {
  const Result<bool> renewed = net::renew_coordinator(options_.state_dir, net::unix_now_s());
  if (!renewed) log("warning: cannot renew the coordinator's certificate: " + renewed.error().message);
  if (renewed.ok() && renewed.value()) log("the coordinator's certificate is renewed");
  renewal_.expires_after(kRenewalLook);
  renewal_.async_wait([this](const boost::system::error_code& error) {
    if (!error) renew_identity();
  });
}

void CoordinatorDaemon::run() {
  (void)std::signal(SIGPIPE, SIG_IGN);
  serve();
  wait_signal();
  io_.run();
}

void CoordinatorDaemon::serve() {
  const auto refuse = [this](const std::string& peer, const std::string& reason) {
    log(fmt::format("{} is refused: {}", peer, reason));
  };
  const auto welcome = [this](const NodeId& node, std::unique_ptr<net::CoordinatorLink> link) {
    log(fmt::format("node {}: connected", node));
    shell_.add_agent(node, std::move(link));
  };
  shell_.on_refused = [this](const NodeId& node, const std::string& reason) {
    log(fmt::format("node {}: refused: {}", node, reason));
  };
  net::Door::Handlers handlers;
  handlers.kinds[net::kAgentKind] = net::serve_agents(io_, welcome, refuse);
  handlers.kinds[kClientKind] = [this](std::unique_ptr<net::Visitor> visitor, const nlohmann::json&) {
    service_.desk().take(std::move(visitor));
  };
  for (const char* kind : {"join", "renew"}) {
    if (!join_desk_) break;
    handlers.kinds[kind] = [this](std::unique_ptr<net::Visitor> visitor, const nlohmann::json& first) {
      join_desk_->take(std::move(visitor), first);
    };
  }
  handlers.on_refused = refuse;
  door_->start(std::move(handlers));
}

void CoordinatorDaemon::wait_signal() {
  signals_.async_wait([this](const boost::system::error_code& error, int signal) {
    if (error) return;
    log(fmt::format("signal {}: the coordinator ends, runs go on", signal));
    shell_.stop();
    io_.stop();
  });
}

void CoordinatorDaemon::log(const std::string& line) const { fmt::print(stderr, "sgd-launch coordinator: {}\n", line); }

}  // namespace sgd::coordinator

// What a connection costs a coordinator, in plain text and in TLS: memory at rest, time of a handshake, and
// processor time for each heartbeat. The agents are another process, so that the figures are the
// coordinator's alone. Heartbeats are spread over time, as those of a real cluster: each wakes the event loop
// by itself.
//
//   tls_bench [CONNECTIONS [BEATS_EACH]]

#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <boost/asio/steady_timer.hpp>

#include "launcher/net/tcp_link.hpp"
#include "test/bench/make_identity.hpp"

namespace {

using namespace sgd;
using Context = std::shared_ptr<const net::TlsContext>;

constexpr auto kBetweenBeats = std::chrono::microseconds(300);  // Of all connections together.

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double resident_kib() {
  std::ifstream file("/proc/self/statm");
  long whole = 0, resident = 0;
  file >> whole >> resident;
  return static_cast<double>(resident * ::sysconf(_SC_PAGESIZE)) / 1024;
}

double heap_kib() {
  const auto info = ::mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd) / 1024;
}

/// The agents: all of them in this process.
class Agents {
 public:
  Agents(int port, int connections, int beats, const Context& tls)
      : left_(static_cast<long>(connections) * beats), timer_(io_) {
    for (int index = 0; index < connections; ++index) {
      links_.push_back(net::make_tcp_agent_link(io_, buffer_, {"127.0.0.1", port},
                                                core::Random({1, 2, 3, static_cast<std::uint64_t>(index)}), tls));
      net::AgentLink* link = links_.back().get();
      link->start({[this, link] {
                     link->send(cluster::NodeState{"node", 7, "10.0.0.1", 4, 8, true, {}});
                     if (++connected_ == static_cast<int>(links_.size())) begin();
                   },
                   nullptr, [](const std::string& reason) { fmt::print(stderr, "agent: {}\n", reason); }});
    }
  }
  void run() { io_.run(); }

 private:
  void begin() {
    timer_.expires_after(std::chrono::seconds(2));  // The coordinator measures what it has at rest.
    timer_.async_wait([this](const boost::system::error_code&) {
      at_ = std::chrono::steady_clock::now();
      beat();
    });
  }
  void beat() {
    if (left_-- <= 0) return;
    links_[static_cast<std::size_t>(left_) % links_.size()]->send(cluster::Beat{});
    timer_.expires_at(at_ += kBetweenBeats);
    timer_.async_wait([this](const boost::system::error_code&) { beat(); });
  }

  boost::asio::io_context io_{1};
  net::ReadBuffer buffer_;
  std::vector<std::unique_ptr<net::AgentLink>> links_;
  int connected_ = 0;
  long left_;
  boost::asio::steady_timer timer_;
  std::chrono::steady_clock::time_point at_;
};

void measure(const char* name, int connections, int beats, const Context& own, const Context& agent) {
  boost::asio::io_context io{1};
  net::Gateway gateway(io, net::Listener::open(io, {"127.0.0.1", 0}, own).value());
  const int port = gateway.port();
  const pid_t child = ::fork();
  if (child == 0) {
    Agents(port, connections, beats, agent).run();
    ::_exit(0);
  }
  std::vector<std::unique_ptr<net::CoordinatorLink>> links;
  links.reserve(static_cast<std::size_t>(connections));
  long heard = 0;
  const auto welcome = [&](const NodeId&, std::unique_ptr<net::CoordinatorLink> link) {
    link->start({[&heard](const cluster::FromAgent& message) {
                   heard += std::holds_alternative<cluster::Beat>(message) ? 1 : 0;
                 },
                 [](const std::string&) {}});
    links.push_back(std::move(link));
  };
  const auto refuse = [](const std::string&, const net::Refusal& why) {
    fmt::print(stderr, "refused: {}\n", why.reason);
  };
  const double resident = resident_kib(), heap = heap_kib(), cpu_before = cpu_seconds();
  gateway.start({{{net::kAgentKind, net::serve_agents(io, welcome, refuse)}}, refuse});
  while (links.size() < static_cast<std::size_t>(connections)) io.run_one();
  const double cpu_connected = cpu_seconds();
  io.run_for(std::chrono::seconds(1));
  const double per = connections;
  const double resident_each = (resident_kib() - resident) / per, heap_each = (heap_kib() - heap) / per;
  const double cpu_at_rest = cpu_seconds();
  const long wanted = static_cast<long>(connections) * beats;
  while (heard < wanted) io.run_one();
  const double cpu_end = cpu_seconds();
  fmt::print(
      "{:<6} {} connections: {:.1f} KiB resident each ({:.1f} KiB heap), {:.0f} us a connection made, {:.2f} "
      "us a heartbeat "
      "({} heard)\n",
      name, connections, resident_each, heap_each, (cpu_connected - cpu_before) / per * 1e6,
      (cpu_end - cpu_at_rest) / static_cast<double>(wanted) * 1e6, heard);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

}  // namespace

int main(int argc, char** argv) {
  const int connections = argc > 1 ? std::atoi(argv[1]) : 1000;
  const int beats = argc > 2 ? std::atoi(argv[2]) : 20;
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, static_cast<rlim_t>(connections) + 64);
  ::setrlimit(RLIMIT_NOFILE, &files);
  std::string folder = (std::filesystem::temp_directory_path() / "sgd-tls-bench-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) return 1;
  const auto ca = net::CertificateAuthority::create(net::unix_now_s());
  const Context own =
      net::TlsContext::load(bench::make_identity(ca, net::Role::kCoordinator, "node", folder + "/head")).value();
  const Context agent =
      net::TlsContext::load(bench::make_identity(ca, net::Role::kAgent, "node", folder + "/agent")).value();
  measure("plain", connections, beats, nullptr, nullptr);
  measure("TLS", connections, beats, own, agent);
  std::filesystem::remove_all(folder);
  return 0;
}

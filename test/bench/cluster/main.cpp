// The nodes and clients of test/bench/cluster.py.
//
//   cluster_agents agents ADDRESS STATE_DIR IDENTITIES FIRST COUNT SLOTS VALUE_BYTES
//     COUNT agents named node-00000.. from FIRST on, each with a certificate of the authority in STATE_DIR, of which
//     only the key is used; identities are made in the folder IDENTITIES. Each rank gives a value of VALUE_BYTES to an
//     exchange when it starts (0: none). A line of JSON on standard output ten times a second. SIGUSR1 kills the ranks
//     of one node.
//   cluster_agents identity STATE_DIR FOLDER NAME    makes an identity of a client, as above
//   cluster_agents submit ADDRESS IDENTITY JOB TIMES
//     submits the resolved job TIMES times over one connection: a line per run, then {"submit_s":...}.
//   cluster_agents stop ADDRESS IDENTITY    stops every live run at once
//   cluster_agents ask ADDRESS IDENTITY REQUEST TIMES
//     REQUEST is an object, as {"request":"ps"}. Asks TIMES times, one after the other, over one connection:
//     {"seconds":[...],"bytes":N} of the answers.
//
// ADDRESS is 127.0.0.1:PORT. Ends with standard input, so that no process outlives the measurement.

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/json/nlohmann.hpp"
#include "launcher/coordinator/client_service.hpp"
#include "launcher/net/ca.hpp"
#include "launcher/net/certificate.hpp"
#include "launcher/net/client_link.hpp"
#include "launcher/net/cluster_state.hpp"
#include "launcher/net/identity_files.hpp"
#include "launcher/net/wall_clock.hpp"
#include "launcher/process/random_seed.hpp"
#include "test/bench/cluster/simulated_agent.hpp"

namespace {

using namespace sgd;
using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr auto kTell = std::chrono::milliseconds(100);
/// Agents start this far apart: a cluster whose nodes boot, not a storm. That is measured by itself.
constexpr auto kBetweenStarts = std::chrono::microseconds(500);

[[noreturn]] void fail(const std::string& message) {
  fmt::print(stderr, "cluster_agents: {}\n", message);
  std::exit(1);
}

net::Address address_of(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) fail("expected HOST:PORT, got " + text);
  return {text.substr(0, colon), std::atoi(text.c_str() + colon + 1)};
}

net::CertificateAuthority open_ca(const std::string& state_dir) {
  auto ca = net::CertificateAuthority::load(net::ca_folder(state_dir));
  if (!ca) fail(ca.error().message);
  return std::move(ca).value();
}

void make_identity(net::CertificateAuthority& ca, net::Role role, const std::string& name, const std::string& folder) {
  net::IdentityFiles files;
  files.key = net::make_key();
  files.ca = ca.certificate();
  const net::Grant grant{role, name, false, {}};
  files.certificate = ca.issue(net::make_request(files.key).value(), grant, net::unix_now_s()).value();
  if (const Status saved = net::save_identity(folder, files); !saved) fail(saved.error().message);
}

class Agents {
 public:
  Agents(const net::Address& coordinator, const std::string& state_dir, std::string identities, int slots,
         std::size_t value_bytes)
      : coordinator_(coordinator),
        identities_(std::move(identities)),
        slots_(slots),
        value_bytes_(value_bytes),
        ca_(open_ca(state_dir)),
        start_timer_(io_),
        tell_timer_(io_),
        kill_(io_, SIGUSR1),
        input_(io_, ::dup(STDIN_FILENO)) {}

  void run(int first, int count) {
    for (int index = first; index < first + count; ++index) add(fmt::format("node-{:05}", index), index);
    start_next();
    tell();
    wait_end();
    wait_kill();
    io_.run();
  }

 private:
  void add(const std::string& name, int index) {
    const std::string folder = identities_ + "/" + name;
    make_identity(ca_, net::Role::kAgent, name, folder);
    auto tls = net::TlsContext::load(folder);
    if (!tls) fail(tls.error().message);
    core::AgentFacts facts;
    facts.node = name;
    facts.address = fmt::format("10.{}.{}.{}", index / 65536, index / 256 % 256, index % 256);
    facts.incarnation = process::random_seed().front();
    facts.slots = slots_;
    facts.is_shared = true;
    for (int core = 0; core < slots_; ++core) facts.allowed_cores.push_back(core);
    facts.beat_interval = std::chrono::seconds(1);
    facts.version = SGD_VERSION;
    agents_.push_back(std::make_unique<bench::SimulatedAgent>(io_, buffer_, coordinator_, std::move(facts),
                                                              std::move(tls).value(), counts_, value_bytes_));
  }

  void start_next() {
    if (started_ == agents_.size()) return;
    agents_[started_++]->start();
    start_timer_.expires_after(kBetweenStarts);
    start_timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error) start_next();
    });
  }

  void tell() {
    Json line = {{"connected", counts_.connected},
                 {"connections", counts_.connections},
                 {"lost", counts_.lost},
                 {"failures", counts_.failures},
                 {"beats", counts_.beats},
                 {"ranks_started", counts_.ranks_started},
                 {"ranks_ended", counts_.ranks_ended},
                 {"values", counts_.values},
                 {"reasons", counts_.reasons}};
    fmt::print("{}\n", line.dump());
    std::fflush(stdout);
    tell_timer_.expires_after(kTell);
    tell_timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error) tell();
    });
  }

  void wait_end() {
    input_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                      [](const boost::system::error_code&) { std::_Exit(0); });
  }

  void wait_kill() {
    kill_.async_wait([this](const boost::system::error_code& error, int) {
      if (error) return;
      (void)std::any_of(agents_.begin(), agents_.end(), [](const auto& agent) { return agent->kill_ranks(); });
      wait_kill();
    });
  }

  boost::asio::io_context io_{1};
  net::ReadBuffer buffer_;
  net::Address coordinator_;
  std::string identities_;
  int slots_;
  std::size_t value_bytes_;
  net::CertificateAuthority ca_;
  bench::Counts counts_;
  std::vector<std::unique_ptr<bench::SimulatedAgent>> agents_;
  std::size_t started_ = 0;
  boost::asio::steady_timer start_timer_;
  boost::asio::steady_timer tell_timer_;
  boost::asio::signal_set kill_;
  boost::asio::posix::stream_descriptor input_;
};

/// Requests of which as many as may be are under way, as soon as the coordinator has greeted; until all are answered.
std::vector<Json> ask(const net::Address& coordinator, const std::string& identity, std::vector<Json> requests) {
  boost::asio::io_context io{1};
  auto tls = net::TlsContext::load(identity);
  if (!tls) fail(tls.error().message);
  net::ClientLink link(io, coordinator, core::Random(process::random_seed()), std::move(tls).value());
  std::vector<Json> answers(requests.size());
  std::size_t answered = 0;
  std::size_t sent = 0;
  const auto send_more = [&] {
    for (; sent < requests.size() && sent - answered < coordinator::ClientService::kUnansweredMax; ++sent) {
      Json whole = {{"type", "request"}, {"id", sent}};
      whole.update(requests[sent]);
      link.send(whole);
    }
  };
  link.start({send_more,
              [&](const Json& message) {
                if (!message.value("ok", false)) fail(message.dump());
                answers.at(message.value("id", std::size_t{0})) = message;
                ++answered;
                send_more();
              },
              [](const std::string&) {}, [](const std::string& reason) { fail(reason); }});
  while (answered < requests.size()) io.run_one();
  return answers;
}

void submit(const net::Address& coordinator, const std::string& identity, const std::string& path, int times) {
  std::ifstream file(path);
  const Json job = Json::parse(file, nullptr, false);
  if (!job.is_object()) fail("no job: " + path);
  const auto began = Clock::now();
  const std::vector<Json> requests(static_cast<std::size_t>(times), Json{{"request", "submit"}, {"job", job}});
  for (const Json& answer : ask(coordinator, identity, requests)) fmt::print("{}\n", answer.dump());
  fmt::print("{{\"submit_s\":{:.3f}}}\n", std::chrono::duration<double>(Clock::now() - began).count());
}

/// One after the other: what one client waits for.
void ask_often(const net::Address& coordinator, const std::string& identity, const Json& request, int times) {
  boost::asio::io_context io{1};
  auto tls = net::TlsContext::load(identity);
  if (!tls) fail(tls.error().message);
  net::ClientLink link(io, coordinator, core::Random(process::random_seed()), std::move(tls).value());
  Json seconds = Json::array();
  std::size_t bytes = 0;
  Clock::time_point asked;
  Json whole = {{"type", "request"}, {"id", 1}};
  whole.update(request);
  const auto ask_once = [&] {
    asked = Clock::now();
    link.send(whole);
  };
  link.start({ask_once,
              [&](const Json& message) {
                if (!message.value("ok", false)) fail(message.dump());
                seconds.push_back(std::chrono::duration<double>(Clock::now() - asked).count());
                bytes = message.dump().size();
                if (static_cast<int>(seconds.size()) < times) ask_once();
              },
              [](const std::string&) {}, [](const std::string& reason) { fail(reason); }});
  while (static_cast<int>(seconds.size()) < times) io.run_one();
  fmt::print("{}\n", Json{{"seconds", seconds}, {"bytes", bytes}}.dump());
}

void stop_all(const net::Address& coordinator, const std::string& identity) {
  const std::vector<Json> live = ask(coordinator, identity, std::vector<Json>(1, Json{{"request", "ps"}}));
  std::vector<Json> stops;
  for (const Json& run : live.front().at("runs"))
    stops.push_back(Json{{"request", "stop"}, {"run", run.at("run")}, {"at_once", true}});
  if (!stops.empty()) (void)ask(coordinator, identity, std::move(stops));
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  if (words.size() == 8 && words[0] == "agents") {
    Agents(address_of(words[1]), words[2], words[3], std::stoi(words[6]), std::stoul(words[7]))
        .run(std::stoi(words[4]), std::stoi(words[5]));
  } else if (words.size() == 4 && words[0] == "identity") {
    net::CertificateAuthority ca = open_ca(words[1]);
    make_identity(ca, net::Role::kClient, words[3], words[2]);
  } else if (words.size() == 5 && words[0] == "submit") {
    submit(address_of(words[1]), words[2], words[3], std::stoi(words[4]));
  } else if (words.size() == 5 && words[0] == "ask") {
    ask_often(address_of(words[1]), words[2], Json::parse(words[3]), std::stoi(words[4]));
  } else if (words.size() == 3 && words[0] == "stop") {
    stop_all(address_of(words[1]), words[2]);
  } else {
    fail("usage: see the head of test/bench/cluster/main.cpp");
  }
  return 0;
}

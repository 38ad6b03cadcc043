// A checkpoint between a node and the coordinator, both ways, against a raw stream of as many bytes: once from
// memory into nothing, once from a file into a file that is synced, as a transfer must. Two processes.
//
//     transfer_bench [MiB] [rounds] [folder] [--tls] [--host IP --node-netns NAME]
//
// With a namespace the node's process is in that one, and reaches the coordinator's at IP.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <vector>

#include <fmt/format.h>
#include <boost/asio/io_context.hpp>

#include "common/base/assert.hpp"
#include "common/checkpoint/crc32c.hpp"
#include "common/checkpoint/manifest.hpp"
#include "launcher/agent/spool.hpp"
#include "launcher/coordinator/file_service.hpp"
#include "test/bench/make_identity.hpp"
#include "test/bench/transfer/wire.hpp"

using namespace sgd;
using bench::Wire;
namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;
using Context = std::shared_ptr<const net::TlsContext>;
const std::string kName = checkpoint::directory_name(100, 1);

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void write_checkpoint(const std::string& folder, std::size_t bytes) {
  fs::create_directories(folder);
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * 2654435761u >> 13);
  std::ofstream(folder + "/model.safetensors", std::ios::binary) << text;
  checkpoint::Manifest manifest;
  manifest.step = 100;
  manifest.generation = 1;
  manifest.files.push_back({"model.safetensors", bytes, checkpoint::crc32c(0, std::as_bytes(std::span(text)))});
  std::ofstream(folder + "/" + checkpoint::kManifestFile) << checkpoint::encode(manifest);
}

Context context_of(const std::string& identity) {
  return identity.empty() ? nullptr : net::TlsContext::load(identity).value();
}

/// A node's process: its spool in `state`, until `work` says that it is done.
void node(const Wire& wire, int port, const std::string& state,
          const std::function<void(boost::asio::io_context&, agent::Spool&, bool&)>& work) {
  boost::asio::io_context io;
  agent::Spool::Setup setup;
  setup.state_dir = state;
  setup.coordinator = {wire.host, port};
  setup.node = "node1";
  setup.tls = context_of(wire.node_identity);
  agent::Spool spool(io, setup, core::Random({1, 2, 3, 4}));
  SGD_ASSERT(spool.start([](const std::string& text) { fmt::print(stderr, "{}\n", text); }).ok());
  bool is_done = false;
  work(io, spool, is_done);
  while (!is_done) io.run_one();
  spool.stop();
}

/// The coordinator's process, until the node's ends. Seconds from the node's first word to a stored
/// checkpoint.
double coordinator_side(boost::asio::io_context& io, std::unique_ptr<net::Listener> listener,
                        const std::string& run_dir) {
  std::optional<Clock::time_point> begin;
  std::optional<double> seconds;
  coordinator::FileService service(
      io, {[&](const RunId&) { return std::optional(run_dir); }, [](const RunId&, const NodeId&) { return true; },
           nullptr, [&](const RunId&, const std::string&) { seconds = seconds_since(*begin); }, nullptr, nullptr});
  net::Gateway gateway(io, std::move(listener));
  net::Gateway::Handlers handlers;
  handlers.kinds[coordinator::FileService::kKind] = [&](std::unique_ptr<net::Session> session,
                                                        const nlohmann::json& first) {
    begin = Clock::now();
    service.take(std::move(session), first);
  };
  gateway.start(std::move(handlers));
  const auto has_ended = [] {
    siginfo_t info{};
    return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
  };
  // The node's process ends when it is told that everything is stored, or has what it asked for.
  while (!has_ended()) io.run_one_for(std::chrono::milliseconds(10));
  service.stop();
  return seconds.value_or(0);
}

double ours(const Wire& wire, const std::string& folder, bool is_up) {
  const std::string state = folder + "/state";
  const std::string run_dir = folder + "/run";
  const std::string spool_dir = state + "/runs/run1";
  fs::create_directories(run_dir + "/checkpoints");
  fs::create_directories(spool_dir + "/checkpoints");
  fs::rename(folder + "/made", (is_up ? spool_dir : run_dir) + "/checkpoints/" + kName);
  boost::asio::io_context io;
  auto listener = net::Listener::open(io, {wire.host, 0}, context_of(wire.head_identity));
  SGD_ASSERT(listener.ok());
  const int port = listener.value()->port();
  std::array<int, 2> pipe{};
  SGD_ASSERT(::pipe(pipe.data()) == 0);
  double seconds = 0;
  cluster::DesiredRun desired;
  desired.run = "run1";
  desired.want = cluster::Want::kRun;
  desired.run_dir = run_dir;
  bench::in_two(
      wire,
      [&] {
        node(wire, port, state, [&](boost::asio::io_context& own, agent::Spool& spool, bool& is_done) {
          (void)spool.localize(desired);
          if (is_up) {
            spool.end("run1");
            while (fs::exists(spool_dir)) own.run_one_for(std::chrono::milliseconds(20));
            is_done = true;
          } else {
            const auto begin = Clock::now();
            spool.fetch("run1", spool_dir + "/checkpoints/" + kName,
                        {nullptr, [&, begin](const agent::FileFetcher::Fetched& fetched) {
                           SGD_ASSERT(fetched.error.empty());
                           const double taken = seconds_since(begin);
                           SGD_ASSERT(::write(pipe[1], &taken, sizeof taken) == sizeof taken);
                           is_done = true;
                         }});
          }
        });
      },
      [&] { seconds = coordinator_side(io, std::move(listener).value(), run_dir); });
  if (!is_up) SGD_ASSERT(::read(pipe[0], &seconds, sizeof seconds) == sizeof seconds);
  (void)::close(pipe[0]);
  (void)::close(pipe[1]);
  fs::rename(run_dir + "/checkpoints/" + kName, folder + "/made");
  fs::remove_all(state);
  return seconds;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> words;
  Wire wire;
  bool has_tls = false;
  for (int index = 1; index < argc; ++index) {
    const std::string word = argv[index];
    if (word == "--tls") {
      has_tls = true;
    } else if (word == "--host" && index + 1 < argc) {
      wire.host = argv[++index];
    } else if (word == "--node-netns" && index + 1 < argc) {
      wire.node_netns = argv[++index];
    } else {
      words.push_back(word);
    }
  }
  const std::size_t bytes = (!words.empty() ? std::stoul(words[0]) : 256) << 20;
  const int rounds = words.size() > 1 ? std::stoi(words[1]) : 5;
  std::string folder = (words.size() > 2 ? words[2] : fs::temp_directory_path().string()) + "/transfer-bench-XXXXXX";
  SGD_ASSERT(::mkdtemp(folder.data()) != nullptr);
  if (has_tls) {
    const auto ca = net::CertificateAuthority::create(net::unix_now_s());
    wire.head_identity = bench::make_identity(ca, net::Role::kCoordinator, "head", folder + "/head");
    wire.node_identity = bench::make_identity(ca, net::Role::kAgent, "node1", folder + "/node");
  }
  write_checkpoint(folder + "/made", bytes);
  const std::string raw = has_tls ? "raw TLS" : "raw TCP";
  const std::vector<std::pair<std::string, std::function<double()>>> ways = {
      {raw + ", memory to nothing", [&] { return raw_stream(wire, bytes, "", ""); }},
      {raw + ", file to synced file",
       [&] { return raw_stream(wire, bytes, folder + "/made/model.safetensors", folder + "/copy"); }},
      {"to the coordinator", [&] { return ours(wire, folder, true); }},
      {"to a node", [&] { return ours(wire, folder, false); }}};
  std::vector<std::vector<double>> seconds(ways.size());
  for (int round = 0; round < rounds; ++round)
    for (std::size_t way = 0; way < ways.size(); ++way) seconds[way].push_back(ways[way].second());
  for (std::size_t way = 0; way < ways.size(); ++way) {
    const auto [least, most] = std::minmax_element(seconds[way].begin(), seconds[way].end());
    fmt::print("{:<30} {:7.3f} s ({:.3f} to {:.3f}), {:6.0f} MiB/s, {:4.0f} % of raw, {:4.0f} % of raw with files\n",
               ways[way].first, median(seconds[way]), *least, *most,
               static_cast<double>(bytes >> 20) / median(seconds[way]), 100 * median(seconds[0]) / median(seconds[way]),
               100 * median(seconds[1]) / median(seconds[way]));
  }
  fs::remove_all(folder);
}

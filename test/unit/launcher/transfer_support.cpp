#include "test/unit/launcher/transfer_support.hpp"

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include <boost/asio/write.hpp>
#include <catch2/catch.hpp>

#include "common/checkpoint/crc32c.hpp"
#include "common/checkpoint/manifest.hpp"

namespace sgd::test {

namespace asio = boost::asio;
namespace fs = std::filesystem;
using asio::ip::tcp;
using namespace std::chrono_literals;

// ---- the line ----

struct Wire::Pair {
  explicit Pair(asio::io_context& io) : agent(io), coordinator(io) {}
  tcp::socket agent;
  tcp::socket coordinator;
  std::array<std::array<char, 64 << 10>, 2> buffers{};
  Wire* wire = nullptr;

  void close() {
    boost::system::error_code ignored;
    agent.close(ignored);
    coordinator.close(ignored);
  }
};

Wire::Wire(asio::io_context& io, int port)
    : io_(io), acceptor_(io, {asio::ip::address_v4::loopback(), 0}), to_port_(port) {
  accept();
}

Wire::~Wire() {
  cut();
}

void Wire::accept() {
  acceptor_.async_accept([this](const boost::system::error_code& error, tcp::socket socket) {
    if (error) return;
    if (!is_blocked_) {
      ++connections;
      const auto pair = std::make_shared<Pair>(io_);
      pair->wire = this;
      pair->agent = std::move(socket);
      boost::system::error_code failed;
      pair->coordinator.connect({asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(to_port_)}, failed);
      if (!failed) {
        pairs_.push_back(pair);
        pass(pair, true);
        pass(pair, false);
      }
    }
    accept();
  });
}

void Wire::pass(const std::shared_ptr<Pair>& pair, bool is_up) {
  tcp::socket& from = is_up ? pair->agent : pair->coordinator;
  tcp::socket& to = is_up ? pair->coordinator : pair->agent;
  auto& buffer = pair->buffers[is_up ? 0 : 1];
  from.async_read_some(asio::buffer(buffer), [this, pair, is_up, &to, &buffer](const boost::system::error_code& error,
                                                                               std::size_t size) {
    if (pair->wire == nullptr) return;
    if (error) return pair->close();
    auto bytes = std::make_shared<std::string>(buffer.data(), size);
    (is_up ? up_bytes : down_bytes) += static_cast<std::int64_t>(size);
    if (const auto& change = is_up ? on_up : on_down) change(*bytes);
    std::int64_t& left = is_up ? cut_after_up : cut_after_down;
    if (left >= 0 && (left -= static_cast<std::int64_t>(size)) < 0) {
      left = -1;
      return cut();
    }
    asio::async_write(to, asio::buffer(*bytes),
                      [this, pair, is_up, bytes](const boost::system::error_code& failed, std::size_t) {
                        if (pair->wire == nullptr) return;
                        if (failed) return pair->close();
                        pass(pair, is_up);
                      });
  });
}

void Wire::cut() {
  for (const auto& one : pairs_) {
    const auto pair = one.lock();
    if (!pair) continue;
    pair->wire = nullptr;
    pair->close();
  }
  pairs_.clear();
}

void Wire::block(bool is_blocked) {
  is_blocked_ = is_blocked;
  if (is_blocked) cut();
}

// ---- files ----

std::string noise(std::size_t bytes, unsigned seed) {
  std::mt19937 generator(seed);
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; i += 4) {
    const std::uint32_t word = generator();
    for (std::size_t at = i; at < std::min(bytes, i + 4); ++at)
      text[at] = static_cast<char>(word >> (8 * (at - i)) & 0xff);
  }
  return text;
}

std::string slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

CheckpointFiles make_checkpoint(std::int64_t step, Generation generation, std::size_t bytes, unsigned seed) {
  CheckpointFiles made;
  made.name = checkpoint::directory_name(step, generation);
  made.files["model.safetensors"] = noise(bytes, seed);
  made.files["optimizer.safetensors"] = noise(bytes / 3, seed + 1);
  made.files["state.json"] = "{}\n";
  made.files["empty.bin"] = "";
  checkpoint::Manifest manifest;
  manifest.step = step;
  manifest.generation = generation;
  for (const auto& [name, text] : made.files)
    manifest.files.push_back({name, text.size(), checkpoint::crc32c(0, std::as_bytes(std::span(text)))});
  made.files[checkpoint::kManifestFile] = checkpoint::encode(manifest);
  return made;
}

void write_checkpoint(const std::string& run_dir, const CheckpointFiles& made) {
  const std::string folder = run_dir + "/checkpoints/" + made.name;
  fs::create_directories(folder + ".new");
  for (const auto& [name, text] : made.files) std::ofstream(folder + ".new/" + name, std::ios::binary) << text;
  fs::rename(folder + ".new", folder);
}

bool Transfers::has(const std::string& folder, const CheckpointFiles& checkpoint) {
  std::size_t count = 0;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator(); entry.increment(error))
    ++count;
  if (count != checkpoint.files.size()) return false;
  for (const auto& [name, text] : checkpoint.files)
    if (slurp(folder + "/" + name) != text) return false;
  return true;
}

// ---- coordinator and nodes ----

Transfers::Transfers(storage::Quota limits) : run_dir(folder.path("coordinator/run1")), quota(limits) {
  fs::create_directories(run_dir);
  times.gather = 2ms;
  times.sweep = 50ms;
  times.retry_first = 20ms;
  times.retry_max = 100ms;
  restart_desk();
}

Transfers::~Transfers() {
  nodes.clear();
  if (service) service->stop();
  service.reset();
  gateway.reset();
}

void Transfers::restart_desk() {
  if (service) service->stop();
  service.reset();
  gateway.reset();
  service = std::make_unique<coordinator::FileService>(
      io,
      coordinator::FileService::Handlers{
          [this](const RunId& run) {
            return knows_run && (run == "run1" || knows_all) ? std::optional(run_dir) : std::nullopt;
          },
          [this](const RunId&, const NodeId& node) { return !foreign.contains(node); },
          [this](const RunId&, const std::string& file, std::int64_t bytes) { grown[file] = bytes; },
          [this](const RunId&, const std::string& path) { stored.push_back(path); },
          [this](const RunId&, const NodeId& node) { all_sent.push_back(node); },
          [this](const std::string&, const char*, const std::string& reason) { refused.push_back(reason); }},
      quota);
  auto listener = net::Listener::open(io, {"127.0.0.1", port});
  REQUIRE(listener.ok());
  gateway = std::make_unique<net::Gateway>(io, std::move(listener).value());
  port = gateway->port();
  net::Gateway::Handlers handlers;
  handlers.kinds[coordinator::FileService::kKind] = [this](std::unique_ptr<net::Session> session,
                                                           const nlohmann::json& first) {
    service->take(std::move(session), first);
  };
  gateway->start(std::move(handlers));
}

Transfers::Node& Transfers::add_node(const std::string& name) {
  Node& node = nodes[name];
  node.state_dir = folder.path(name);
  node.wire = std::make_unique<Wire>(io, port);
  start(node, name);
  return node;
}

void Transfers::start(Node& node, const std::string& name, Incarnation incarnation) {
  agent::Spool::Setup setup;
  setup.state_dir = node.state_dir;
  setup.coordinator = {"127.0.0.1", node.wire->port()};
  setup.node = name;
  setup.incarnation = incarnation;
  setup.quota = node_quota;
  setup.times = times;
  setup.keep_refused = keep_refused;
  setup.revisit = revisit;
  node.spool = std::make_unique<agent::Spool>(io, setup, core::Random({1, 2, 3, 4}));
  REQUIRE(node.spool->start([&node](const std::string& message) { node.warnings.push_back(message); }).ok());
}

cluster::DesiredRun Transfers::want(Node& node, std::vector<std::string> resume_from, const RunId& run) {
  cluster::DesiredRun desired;
  desired.run = run;
  desired.generation = 1;
  desired.want = cluster::Want::kRun;
  desired.run_dir = run_dir;
  desired.resume_from = std::move(resume_from);
  return node.spool->localize(desired);
}

void Transfers::run_until(const std::function<bool()>& done, Duration limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!done()) {
    for (const auto& [name, node] : nodes)
      for (const std::string& warning : node.warnings) UNSCOPED_INFO(name << ": " << warning);
    for (const std::string& reason : refused) UNSCOPED_INFO("refused: " << reason);
    REQUIRE(std::chrono::steady_clock::now() < deadline);
    if (io.stopped()) io.restart();
    io.run_one_for(50ms);
  }
}

void Transfers::fetch(Node& node, const std::string& name, std::optional<agent::FileFetcher::Fetched>& out) {
  node.spool->fetch("run1", node.folder() + "/checkpoints/" + name,
                    {nullptr, [&out](const agent::FileFetcher::Fetched& fetched) { out = fetched; }});
}

bool Transfers::is_stored(const CheckpointFiles& checkpoint) const {
  return std::find(stored.begin(), stored.end(), "checkpoints/" + checkpoint.name) != stored.end();
}

}  // namespace sgd::test

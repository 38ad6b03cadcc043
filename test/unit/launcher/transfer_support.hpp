#pragma once
// A coordinator's file service and agents' spools that talk over real sockets, with somebody in between who can
// cut the line, count what passes, and turn bits over.

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>

#include "launcher/agent/spool.hpp"
#include "launcher/coordinator/file_service.hpp"
#include "launcher/net/gateway.hpp"
#include "test/unit/common/temporary_folder.hpp"

namespace sgd::test {

/// Passes bytes on between an agent and the gateway, chunk by chunk as they come.
class Wire {
 public:
  Wire(boost::asio::io_context& io, int port);
  ~Wire();

  [[nodiscard]] int port() const { return acceptor_.local_endpoint().port(); }
  /// Every connection ends, as when a cable is cut; new ones are let through, or not.
  void cut();
  void block(bool is_blocked);

  /// Called with the bytes that go up (to the coordinator) before they are passed on; may change them.
  std::function<void(std::string& bytes)> on_up;
  std::function<void(std::string& bytes)> on_down;
  std::int64_t up_bytes = 0;
  std::int64_t down_bytes = 0;
  std::int64_t cut_after_up = -1;  ///< Cut when so many more bytes have gone up; -1: never.
  std::int64_t cut_after_down = -1;
  int connections = 0;

 private:
  struct Pair;
  void accept();
  void pass(const std::shared_ptr<Pair>& pair, bool is_up);

  boost::asio::io_context& io_;
  boost::asio::ip::tcp::acceptor acceptor_;
  int to_port_;
  bool is_blocked_ = false;
  std::vector<std::weak_ptr<Pair>> pairs_;
};

/// A checkpoint as a worker leaves it: a manifest, and files of the given sizes with bytes that `seed` gives.
struct CheckpointFiles {
  std::string name;                          ///< "step-...-gen-..."
  std::map<std::string, std::string> files;  ///< The manifest too.
};
[[nodiscard]] CheckpointFiles make_checkpoint(std::int64_t step, Generation generation, std::size_t bytes,
                                              unsigned seed = 1);
void write_checkpoint(const std::string& run_dir, const CheckpointFiles& checkpoint);
/// Bytes without a pattern.
[[nodiscard]] std::string noise(std::size_t bytes, unsigned seed);
/// The bytes of a file; empty when it is not there.
[[nodiscard]] std::string slurp(const std::string& path);

/// One coordinator with a run "run1", and nodes.
struct Transfers {
  struct Node {
    std::string state_dir;
    std::unique_ptr<Wire> wire;
    std::unique_ptr<agent::Spool> spool;
    std::vector<std::string> warnings;
    [[nodiscard]] std::string folder() const { return state_dir + "/runs/run1"; }
  };

  explicit Transfers(storage::Quota quota = {});
  ~Transfers();

  Node& add_node(const std::string& name);
  void start(Node& node, const std::string& name, Incarnation incarnation = 1);
  /// The coordinator wants the run on the node: its folder is there.
  cluster::DesiredRun want(Node& node, std::vector<std::string> resume_from = {}, const RunId& run = "run1");
  /// The coordinator's service as after a restart.
  void restart_desk();
  void run_until(const std::function<bool()>& done, Duration limit = std::chrono::seconds(60));
  /// What came of Spool::fetch(); nothing yet.
  void fetch(Node& node, const std::string& name, std::optional<agent::FileFetcher::Fetched>& out);
  [[nodiscard]] bool is_stored(const CheckpointFiles& checkpoint) const;
  /// Every file as in `checkpoint`, below `folder`, and no other.
  [[nodiscard]] static bool has(const std::string& folder, const CheckpointFiles& checkpoint);

  boost::asio::io_context io;
  TemporaryFolder folder;
  std::string run_dir;
  storage::Quota quota;
  storage::Quota node_quota = {};
  agent::SenderTimes times;
  Duration keep_refused = std::chrono::hours(24);
  Duration revisit = std::chrono::hours(1);
  bool knows_run = true;
  bool knows_all = false;    ///< And every other one: in its folder.
  std::set<NodeId> foreign;  ///< Nodes that have had no rank of it.
  std::vector<std::string> stored;
  std::vector<std::string> refused;
  std::map<std::string, std::int64_t> grown;
  std::vector<NodeId> all_sent;  ///< Nodes that have nothing left.
  int port = 0;
  std::unique_ptr<coordinator::FileService> service;
  std::unique_ptr<net::Gateway> gateway;
  std::map<std::string, Node> nodes;
};

/// A peer that sends what a test likes.
struct Stranger {
  explicit Stranger(Transfers& transfers) : at(transfers), socket(transfers.io) {
    socket.connect({boost::asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(at.port)});
    say(hello::encode({}));
    say(transfer::encode(transfer::Files{"evil", 1}));
  }
  void say(const std::string& json) { write(encode_frame(FrameKind::kJson, json)); }
  void chunk(const std::string& bytes) { write(encode_frame(FrameKind::kChunk, bytes)); }
  void write(const std::string& frame) { boost::asio::write(socket, boost::asio::buffer(frame)); }
  void put(const std::string& file, const std::string& bytes) {
    transfer::Put put{"run1", file, 0, static_cast<std::int64_t>(bytes.size()), 0, false};
    put.crc32c = transfer::checksum("run1", file, 0, bytes);
    say(transfer::encode(put));
    chunk(bytes);
  }
  /// The service has closed the connection.
  bool is_closed() {
    boost::system::error_code error;
    std::array<char, 4096> buffer{};
    socket.non_blocking(true);
    while (!error) (void)socket.read_some(boost::asio::buffer(buffer), error);
    return error != boost::asio::error::would_block;
  }

  Transfers& at;
  boost::asio::ip::tcp::socket socket;
};

}  // namespace sgd::test

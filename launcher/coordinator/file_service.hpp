#pragma once
// Where the nodes' files come in, and go out again: logs into the run directory by (file, offset),
// checkpoints whole, and checkpoints to nodes that lack them, from the run directory or from another node.
// Serves the gateway's sessions of the kind "files"; bytes are checked and written on two threads, logs and
// checkpoints apart, so that neither the event loop nor a log line waits for a large checkpoint's disk.
//
//   session ── put, query ──> logs_ | checkpoints_ (FileThread, RunFiles) ──> have, stored, refused
//           ── get ─────────> checkpoints_ ──> listing, data      └─ it is not here ──> CheckpointRelay ──
//           ship ──> another one
//
// What a session does wrong (a name that may not travel, a run that nobody knows, more than the quota) is
// refused, counted and told; too much of it, or bytes beyond the window, ends the connection.

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "common/messages/transfer.hpp"
#include "launcher/coordinator/checkpoint_relay.hpp"
#include "launcher/net/attempt_limit.hpp"
#include "launcher/net/gateway.hpp"
#include "launcher/net/wakeup_timer.hpp"
#include "launcher/storage/file_thread.hpp"
#include "launcher/storage/run_files.hpp"

namespace sgd::coordinator {

class FileService {
 public:
  static constexpr const char* kKind = "files";      ///< Of its sessions' first message.
  static constexpr std::size_t kRefusalsMax = 1000;  ///< Of one connection.
  /// Of one node, on whichever connection: after so many, each further one costs its connection a rest. One is
  /// forgotten in each rest.
  static constexpr double kRefusalsFree = 32;
  static constexpr Duration kRest = std::chrono::milliseconds(10);
  static constexpr std::size_t kRequestsMax = 1 << 12;  ///< Of one connection, on a thread.
  static constexpr std::size_t kSettledMax = 256;       ///< Runs.
  /// Runs whose folders are held open; beyond it, what nobody has asked for longest is closed. A node may ask for the
  /// files of all runs that it has ever had ranks of.
  static constexpr std::size_t kOpenMax = 1024;

  struct Handlers {
    /// A run's folder; nothing for a run that this coordinator does not know.
    std::function<std::optional<std::string>(const RunId& run)> directory_of;
    /// Whether a node may add to the files of a run and have them; absent: none may.
    std::function<bool(const RunId& run, const NodeId& node)> may_touch;
    /// A file below logs/ or errors/ has `bytes` bytes now. May be absent.
    std::function<void(const RunId& run, const std::string& file, std::int64_t bytes)> on_log_grown;
    /// A checkpoint, "checkpoints/step-...", is whole in the run's folder; may be told again. May be absent.
    std::function<void(const RunId& run, const std::string& path)> on_checkpoint_stored;
    /// Every file that the node had of a run is here, and safe; may be told twice. May be absent.
    std::function<void(const RunId& run, const NodeId& node)> on_all_sent;
    /// `kind` is one of a few fixed words, for counting. May be absent.
    std::function<void(const std::string& peer, const char* kind, const std::string& reason)> on_refused = {};
    /// The folder whose "files" are what the run's job has brought; nothing as for directory_of. Absent: that one.
    std::function<std::optional<std::string>(const RunId& run)> directory_of_files = {};
    /// At whose cost a run's files grow. Absent: nobody's.
    std::function<storage::Charge(const RunId& run)> charge_of = {};
    /// The run is over and was settled: what could not be kept of it since changes nothing. Absent: none is.
    std::function<bool(const RunId& run)> is_settled = {};
  };

  /// `io` must outlive it, and it the gateway whose sessions it serves.
  FileService(boost::asio::io_context& io, Handlers handlers, storage::Quota quota = {});
  ~FileService();

  void take(std::unique_ptr<net::Session> session, const nlohmann::json& first);
  /// Of the run's checkpoints these count ("checkpoints/step-..." or absolute): its nodes need not keep and send
  /// others.
  void keep(const RunId& run, const std::vector<std::string>& paths);
  /// The run is over and its files are whole: nothing of it stays open. What a node sends later is taken all the same,
  /// and for the last kSettledMax runs nodes that connect later are told which checkpoints count.
  void settle(const RunId& run);
  /// Why the newest bytes of a run that is not settled, or those of a file that was refused, could not be kept; empty:
  /// they are.
  [[nodiscard]] std::string trouble_of(const RunId& run) const;
  [[nodiscard]] std::size_t refused() const { return refused_; }
  void stop();

 private:
  /// What a thread knows of a peer's files; one for each thread.
  struct Intake;
  struct Peer;
  struct PutOutcome;
  using Files = std::shared_ptr<storage::RunFiles>;
  struct Opened {
    Files files;
    std::uint64_t used = 0;  ///< The larger, the later.
  };

  /// Why bytes could not be kept, and of which file.
  struct Trouble {
    std::string file;
    std::string error;
    bool is_refusal = false;  ///< They do not come again on this connection: what comes of other files ends nothing.
  };

  void on_frame(PeerId id, Frame frame);
  void on_closed(PeerId id);
  void on_put(PeerId id, transfer::Put put, std::string bytes);
  void note_trouble(const RunId& run, const std::string& file, const storage::Held& held);
  void on_put_done(PeerId id, const transfer::Put& put, const PutOutcome& outcome);
  void on_query(PeerId id, const transfer::Query& query);
  void on_checkpoint_done(PeerId id, const transfer::CheckpointDone& done);
  void on_all_sent(PeerId id, const transfer::AllSent& sent);
  void on_get(PeerId id, const transfer::Get& get);
  void send_listing(PeerId id, const CheckpointId& checkpoint);
  void send_data(PeerId id, const transfer::Get& get);
  void stored(PeerId id, const CheckpointId& checkpoint);
  [[nodiscard]] bool may_touch(PeerId id, const RunId& run) const;
  /// The run's files, or nothing after a refusal.
  [[nodiscard]] Files files_of(PeerId id, const RunId& run, const std::string& path, const Status& name);
  void close_unused();
  void refuse(PeerId id, const RunId& run, const std::string& path, const char* kind, const std::string& reason);
  void count_refusal(const net::Session& session, const char* kind, const std::string& reason);
  void send(PeerId id, const transfer::ToNode& message, std::string_view chunk = {});
  void close(PeerId id, const char* kind, const std::string& reason);
  template <class Work, class Done>
  void ask(PeerId id, storage::FileThread& thread, Work work, Done done);
  void carry_out(const RelayActions& actions);
  void on_wakeup();
  [[nodiscard]] storage::FileThread& thread_of(const std::string& file);

  boost::asio::io_context& io_;
  Handlers handlers_;
  storage::Quota quota_;
  std::map<PeerId, std::unique_ptr<Peer>> peers_;
  PeerId next_ = 1;
  std::map<std::string, Opened> files_;  ///< By run, and by folder where it is about what jobs have brought.
  std::uint64_t uses_ = 0;
  std::map<RunId, std::vector<std::string>> kept_;  ///< Names of checkpoints, by run.
  std::map<RunId, Trouble> troubles_;               ///< Of runs of which something could not be kept.
  std::deque<RunId> settled_;                       ///< Of kept_: those that are over, the oldest first.
  CheckpointRelay relay_;
  net::WakeupTimer timer_;
  net::AttemptLimit refusals_{kRefusalsFree, kRest};
  std::size_t refused_ = 0;
  storage::FileThread logs_;
  storage::FileThread checkpoints_;
};

}  // namespace sgd::coordinator

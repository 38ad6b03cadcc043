#pragma once
// Brings what the runs of this node have written to the coordinator: logs as they grow, checkpoints the
// newest first. The coordinator says how much it has of each file, so that a lost connection, a restart of
// either side or a damaged chunk costs no more than the bytes since; nothing is forgotten here before it is
// acknowledged.
//
//   file:        unknown --query--> asked --have--> known --put ... have--> (grows) --run ended, put last-->
//   ended
//                   ^---------------- the connection is lost ----------------'
//   checkpoint:  listed, asked file by file --have--> putting --all acknowledged, done--> proving --stored-->
//   stored
//
// One checkpoint at a time: one that has begun is finished even when a newer one counts, or none would ever
// arrive. Those that were superseded before they began are skipped. Logs and checkpoint take turns.

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "common/base/time.hpp"
#include "launcher/agent/file_link.hpp"
#include "launcher/net/timer.hpp"
#include "launcher/storage/file_thread.hpp"
#include "launcher/storage/run_files.hpp"

namespace sgd::agent {

struct SenderTimes {
  Duration sweep = std::chrono::seconds(5);          ///< Every run is looked at, even if nobody says that it has news.
  Duration gather = std::chrono::milliseconds(100);  ///< News of a run that come within this time are one look.
  Duration retry_first = std::chrono::seconds(1);    ///< After a refusal that may pass, as a full disk; doubles up to
  Duration retry_max = std::chrono::seconds(30);
};

class FileSender {
 public:
  static constexpr int kReadsMax = 4;             ///< Chunks that are read ahead.
  static constexpr std::size_t kQueriesMax = 64;  ///< Without an answer.
  static constexpr std::size_t kEndingsMax = 64;  ///< Logs that are said to have ended, without an answer.
  static constexpr int kAttemptsMax = 3;          ///< To put a checkpoint that is found damaged, or cannot be read.
  /// Of a checkpoint, each of which is a question or two at once: more would end the link, and with it that of all
  /// runs.
  static constexpr std::size_t kShippedFilesMax = 2048;
  /// Files of one run; what is new of it after that is not asked for, and stays here until the connection is another
  /// one.
  static constexpr std::size_t kRefusedMax = 16;

  struct Handlers {
    /// Everything of a run that was ended is acknowledged, and the coordinator knows that; it is forgotten here.
    std::function<void(const RunId& run)> on_all_sent;
    /// A run that was ended, and of which something is refused for good, or the run is not known there.
    std::function<void(const RunId& run, const std::string& reason)> on_refused;
    std::function<void(const std::string& message)> on_warning;
  };

  FileSender(boost::asio::io_context& io, storage::FileThread& thread, FileLink& link, Handlers handlers,
             SenderTimes times = {});

  /// Begins to bring the run's files; a run that was ended goes on.
  void add(const RunId& run, std::shared_ptr<storage::RunFiles> files);
  /// This checkpoint is being fetched: it is not removed. Empty: none is any more.
  void spare(const RunId& run, const std::string& name);
  /// Something was written.
  void look(const RunId& run);
  /// Nothing more is written.
  void end(const RunId& run);
  void forget(const RunId& run);
  [[nodiscard]] bool has(const RunId& run) const { return runs_.contains(run); }
  /// All is sent, or refused for good.
  [[nodiscard]] bool is_empty() const { return runs_.empty(); }
  void stop();

  void on_open();
  void on_lost();
  void on(const transfer::Have& have);
  void on(const transfer::Stored& stored);
  void on(const transfer::Refused& refused);
  void on(const transfer::Ship& ship);
  void on(const transfer::Keep& keep);
  void on(const transfer::Taken& taken);

 private:
  struct Track {
    enum class State { kUnknown, kAsked, kKnown, kEnding, kEnded, kRefused };
    State state = State::kUnknown;
    std::int64_t size = 0;  ///< On this node.
    std::int64_t next = 0;  ///< To be read and put.
    std::int64_t acked = 0;
    std::uint64_t attempt = 0;  ///< Chunks that were read for an earlier one are dropped.
  };
  struct Run {
    std::shared_ptr<storage::RunFiles> files;
    std::map<std::string, Track> logs;
    std::set<std::string> waiting;  ///< Names of checkpoints that are here and not known to be there.
    std::set<std::string> stored;
    std::map<std::string, int> attempts;  ///< Of checkpoints that were refused, or could not be read.
    std::size_t refused = 0;              ///< Logs, on this connection.
    Duration rest{};                      ///< After a checkpoint was refused: no other run waits for that.
    TimePoint rests_until{};
    std::vector<std::string> kept;  ///< Names of those that count.
    std::string spared;             ///< Name of one that is being fetched.
    bool is_ended = false;
    bool was_looked_at = false;  ///< Since it was ended.
    bool is_looking = false;
    bool is_told = false;  ///< AllSent, on this connection.
    bool is_cut = false;   ///< Not all of its names are known here, and that was said.
    bool has_news = true;
    bool is_unknown = false;  ///< Refused by the coordinator, until the connection is another one.
    std::string refusal;      ///< Of the last file that was refused.
    std::string unread;       ///< As of the last look, and said.
  };
  /// The checkpoint in work.
  struct Shipment {
    enum class State { kListing, kPutting, kProving };
    RunId run;
    std::string path;
    State state = State::kListing;
    std::vector<std::pair<std::string, Track>> files;  ///< The manifest last.
    bool is_asked_for = false;                         ///< By another node: Lacks is the answer if it cannot be.
    std::uint64_t number = 0;
  };

  using Key = std::pair<RunId, std::string>;  ///< Run and file.

  void look_soon();
  void look_at(const RunId& run, Run& entry);
  void on_inventory(const RunId& run, bool was_ended, const storage::RunFiles::Inventory& inventory);
  void note_unread(const RunId& run, Run& entry, const std::string& unread);
  void note_cut(const RunId& run, Run& entry, std::size_t names_most);
  void sweep();
  void ask_for_offsets();
  void pump();
  [[nodiscard]] bool read_log();
  [[nodiscard]] bool read_checkpoint();
  void read(const RunId& run, const std::string& file, Track& track);
  void put(const transfer::Put& put, std::uint64_t attempt, const Result<std::string>& bytes);
  void look_for_again(const Key& key, Track& track);
  void move(Track& track, std::int64_t next, std::int64_t acked);
  void take_answer(Track& track, const transfer::Have& have);
  void advance(const RunId& run, const std::string& file, Track& track);
  void note_answer(const RunId& run, const std::string& file);
  void on_file_refused(Run& entry, const transfer::Refused& refused);
  void check_end(const RunId& run);
  void retry_later(const std::string& reason);
  [[nodiscard]] Track* find(const RunId& run, const std::string& file);
  [[nodiscard]] bool can_put() const { return !is_paused_ && link_.is_open(); }

  // file_sender_checkpoints.cpp
  void choose_checkpoint();
  void ship(const RunId& run, const std::string& path, bool is_asked_for);
  void list_shipment();
  void on_listed(std::uint64_t number, const Result<std::vector<transfer::ListedFile>>& listed);
  void refuse_shipment(const std::string& reason);
  void prove_if_complete();
  void drop_shipment(const std::string& reason);
  void on_checkpoint_refused(Run& entry, const std::string& path, const std::string& reason);
  void wake_from_rest();

  storage::FileThread& thread_;
  FileLink& link_;
  Handlers handlers_;
  SenderTimes times_;
  std::map<RunId, Run> runs_;
  std::optional<Shipment> shipment_;
  std::uint64_t next_number_ = 1;
  std::int64_t in_flight_ = 0;  ///< Bytes that are read or put, and not acknowledged.
  int reads_ = 0;
  std::size_t queries_ = 0;
  std::set<Key> ready_;       ///< Logs with bytes to read.
  std::set<Key> ending_;      ///< Logs that are said to have ended.
  std::deque<Key> unended_;   ///< Logs that are to be.
  std::deque<Key> unasked_;   ///< Logs of which the coordinator has not said yet what it has.
  Key last_log_;              ///< Logs take turns.
  bool is_logs_turn_ = true;  ///< And so do logs and checkpoint.
  RunId last_shipped_;        ///< And runs with checkpoints.
  bool is_paused_ = false;
  bool is_gathering_ = false;
  Duration retry_;
  net::Timer gather_timer_;
  net::Timer sweep_timer_;
  net::Timer retry_timer_;
  net::Timer rest_timer_;
};

}  // namespace sgd::agent

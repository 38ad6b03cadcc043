#pragma once
// All that an agent's machine knows of one run, as a value: a machine made of it goes on as the one that it was taken
// of. A new field belongs here (node_run.hpp does not compile with one of its own), and into its list in
// storage/agent_state_fields.hpp (which does not compile without it).

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/time.hpp"
#include "launcher/core/agent_io.hpp"
#include "launcher/core/core_allocation.hpp"
#include "launcher/core/watchdog.hpp"

namespace sgd::core {

struct NodeRunState {
  enum class Keeper { kNone, kStarting, kUp, kClosing, kEnded, kLost };
  enum class ForkServer { kNone, kStarting, kReady, kUnusable };
  enum class Group { kEmpty, kAlive, kClearing };

  struct RankRecord {
    int local_rank = 0;
    RankShare share;
    std::string token;
    int pid = 0;
    std::optional<ConnectionId> connection;
    int link_pid = 0;  ///< Who has the connection.
    bool assigned = false;
    std::int64_t step = 0;      ///< Of its last heartbeat.
    bool is_ready = false;      ///< Its state is restored; it can be asked for its stack.
    bool is_stoppable = false;  ///< It asks whether to stop, and needs no signal.
    bool asked_to_stop = false;
    bool asked_to_leave = false;
    bool exit_told = false;
    bool start_told = false;
    bool is_paused = false;  ///< Its link is not read.
    bool had_time = false;   ///< Since its end it was read again: it is waited for once, whoever else writes there.
    std::string failure_message;         ///< What the rank said in `failed`.
    std::optional<keeper::Exited> exit;  ///< Held until the link has closed.
    TimePoint exit_deadline;
    TimePoint last_words_until;                ///< The deadline moves with what is heard, up to here.
    std::optional<std::string> fetching;       ///< Path of the checkpoint that it waits for.
    int fetches = 0;                           ///< That were asked for.
    std::map<std::string, std::size_t> given;  ///< Exchange values in this generation: a digest by key.
    std::set<std::string> unanswered;          ///< Keys of them whose exchange it waits for.
    std::int64_t lost_lines = 0;               ///< Of its output: its log files lack them, and nobody was told.
    std::int64_t lost_bytes = 0;               ///< Of the same.
    std::int64_t lost_told = 0;                ///< Bytes that were told before.
    std::string lost_why;                      ///< Of the last ones.
    [[nodiscard]] bool is_unheard() const { return is_paused && !had_time; }
  };

  RunId id_;
  cluster::DesiredRun desired_;
  std::string link_path_;  ///< The run's own socket, from the start of its keeper on.
  Keeper keeper_ = Keeper::kNone;
  bool is_orphan_ = false;  ///< kLost by our own order, and the coordinator is told.
  ForkServer fork_server_ = ForkServer::kNone;
  Group group_ = Group::kEmpty;
  Generation spawned_ = 0;             ///< Generation of the group, alive or last alive.
  GenerationUid spawned_uid_ = 0;      ///< Its.
  Generation keeper_generation_ = 0;   ///< For which the keeper was started.
  Generation cleared_told_ = 0;        ///< Newest generation for which Cleared was told.
  Generation port_generation_ = 0;     ///< For which a port was asked for; 0: for none.
  int port_ = 0;                       ///< That one has; 0: it is not known yet.
  std::vector<int> worker_ports_;      ///< Reserved with it, one for each rank here.
  bool was_cleared_by_order_ = false;  ///< SIGKILL exits from now on are ours.
  bool gone_ = false;
  bool has_closed_ = false;  ///< The keeper has said that nothing below it is left.
  std::optional<TimePoint> stop_deadline_;
  std::optional<TimePoint> ending_deadline_;  ///< Ranks of a command that is not wanted any more have got SIGTERM.
  std::optional<keeper::Cleared> cleared_;    ///< The keeper is done; links are still open.
  TimePoint links_deadline_;
  TimePoint links_until_;  ///< It moves with what is heard, up to here.
  int fork_servers_lost_ = 0;
  bool errors_asked_ = false;  ///< The keeper is to say what living ranks have said, once.
  Watchdog watchdog_;
  std::vector<Silence> silent_;  ///< To be told at silence_deadline_.
  TimePoint silence_deadline_;
  std::map<Rank, RankRecord> ranks_;
  std::map<ConnectionId, Rank> connections_;
  std::map<std::string, std::vector<nlohmann::json>> arriving_;  ///< Values of exchanges of which parts are here.
  std::vector<std::string> asks_out_;
  std::vector<cluster::Fact> facts_out_;
};

}  // namespace sgd::core

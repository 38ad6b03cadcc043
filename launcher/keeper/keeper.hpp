#pragma once
// The parent of everything that one run starts on one node: one thread, one poll loop, no
// policy. Starts, watches, signals and clears what the agent tells it to, keeps the log files,
// and reports. Ends when told to close, or with its whole tree when the agent is gone: at once, or, where
// agents come back (AgentListener), when none has for a while; until then it goes on, and keeps what it has to tell.
//
// A rank:  Spawn -> forking (fork server) -> running -------------------------> ended -> Exited, forgotten
//                     '-> SpawnFailed         pidfd '-> left -its group is empty-^ '- its pipes are read empty first
//                                                        '- where its group was sent SIGTERM; a clearing ends it
// Invariant: an exit status is collected by collect_exit() only. While a fork is unanswered no
// unknown child is reaped, because it may be the rank whose pid is still on its way.

#include <poll.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "launcher/keeper/agent_connection.hpp"
#include "launcher/keeper/fork_server_process.hpp"
#include "launcher/keeper/rank_output.hpp"
#include "launcher/keeper/spare.hpp"
#include "launcher/process/out_of_memory.hpp"
#include "launcher/process/process_tree.hpp"
#include "launcher/process/signal_names.hpp"

namespace sgd::keeper {

/// Ends the input of who reads from a terminal; twice, since the first one ends a line that has no newline.
inline constexpr const char* kEndOfInput = "\x04\x04";

class Keeper {
 public:
  /// Where agents connect that take over from one that died.
  struct AgentListener {
    process::UniqueFd listener;    ///< Non-blocking.
    Duration wait{};               ///< Without an agent for so long, everything ends.
    std::vector<int> descriptors;  ///< Given to each; not owned.
  };

  /// `child_signals` is a non-blocking signalfd for SIGCHLD, which is blocked. Without a listener `agent` is
  /// connected.
  Keeper(AgentConnection agent, process::UniqueFd child_signals,
         std::optional<AgentListener> agent_listener = std::nullopt)
      : agent_(std::move(agent)),
        child_signals_(std::move(child_signals)),
        agent_listener_(std::move(agent_listener)) {}
  /// Of one that was a spare: it begins with a fork server.
  Keeper(AgentConnection agent, process::UniqueFd child_signals, PreparedForkServer prepared)
      : agent_(std::move(agent)),
        child_signals_(std::move(child_signals)),
        fork_server_(std::move(prepared.process)),
        prepared_for_(std::move(prepared.request)),
        fork_server_ready_(true) {}

  /// Works until closed (0), or until the agent is gone and everything below is dead (1).
  [[nodiscard]] int run();

 private:
  using Slot = std::uint32_t;  ///< Number of a rank's process here; never reused.

  struct RankProcess {
    enum class State {
      kForking,  ///< Asked of the fork server.
      kRunning,  ///< Watched by its pidfd.
      kLeft,     ///< Reaped; others of its group, which was sent SIGTERM, are still there.
      kEnded,    ///< Reaped; its pipes are being read empty.
    };
    Generation generation = 0;
    Rank rank = 0;
    State state = State::kRunning;
    RankOutput output;
    int pid = -1;
    process::UniqueFd pidfd;
    TimePoint fork_deadline{};            ///< While forking.
    std::optional<TimePoint> held_until;  ///< It has ended under a debugger, which keeps its status: not watched.
    process::ExitStatus status;           ///< Once ended.
    std::int64_t sequence = 0;            ///< Once ended.
    TimePoint ended_at;                   ///< When the end of its process was seen.
    bool ends_with_group = false;         ///< Its group was sent SIGTERM: all in it have the time to end.
    /// Once ended: what it had written to each stream and is not read yet.
    std::array<std::size_t, kStreams.size()> left_in_pipes{};
    bool has_typed_input = false;  ///< Its terminal is given what comes from our standard input.
    std::string error_file;        ///< Where it may have left a record of its failure.
  };
  using Ranks = std::map<Slot, RankProcess>;

  struct Clearing {
    std::vector<Generation> generations;  ///< Asked for, each answered by Cleared.
    bool close = false;
    process::TreeKiller killer;
    TimePoint started_at{};
    TimePoint next_pass{};
    bool forced = false;  ///< The fork server held it up and has been killed.
    /// After ranks that have all ended well: what of theirs ends by itself until then is neither killed nor named.
    std::optional<TimePoint> left_until;
  };

  enum class Source { kAgent, kAgentListener, kChildSignals, kForkSocket, kForkExit, kRankExit, kPipe, kInput };
  struct Watch {
    Source source;
    Slot slot;
    Stream stream;
  };

  // The loop (keeper.cpp).
  void watch_all(TimePoint now);
  void watch(int fd, short events, Source source, Slot slot = 0, Stream stream = Stream::kOut);
  [[nodiscard]] int timeout_ms(TimePoint now) const;
  void dispatch(const Watch& watch, TimePoint now);
  void read_agent(TimePoint now);
  void handle(const StartForkServer& message, TimePoint now);
  void handle(const Spawn& message, TimePoint now);
  void handle(const Signal& message, TimePoint now);
  void handle(const SignalAll& message, TimePoint now);
  void handle(const Clear& message, TimePoint now);
  void handle(const Close& message, TimePoint now);
  void handle(const OutputAck& message, TimePoint now);
  void handle(const Attach& message, TimePoint now);
  void handle(const Received&, TimePoint) {}  ///< The link's own.
  void handle(const AgentEnds& message, TimePoint now);
  void handle(const AskErrors& message, TimePoint now);
  [[nodiscard]] int leave_without_agent();

  // Agents that come and go (keeper_agents.cpp).
  void accept_agent(TimePoint now);
  [[nodiscard]] bool waits_for_agent(TimePoint now);
  void check_last_words(TimePoint now);

  // Ranks (keeper_ranks.cpp).
  void spawn_by_exec(const Spawn& message, RankProcess rank);
  void spawn_by_fork(const Spawn& message, RankProcess rank, TimePoint now);
  void spawn_too_long(const Spawn& message, RankProcess rank);
  void fail_spawn(Generation generation, Rank rank, const Error& error);
  /// Of one that the fork server was to start, which has ended.
  void fail_fork(Generation generation, Rank rank, const std::string& what);
  [[nodiscard]] Ranks::iterator find(Generation generation, Rank rank);
  void collect_exit(RankProcess& rank);
  void end_rank(RankProcess& rank);
  void end_ranks_left();
  void reap();
  void read_pipe(Slot slot, Stream stream, TimePoint now);
  void empty_pipes_of_ended();
  [[nodiscard]] bool empty_pipes(RankProcess& rank);
  void show_open_lines(TimePoint now);
  [[nodiscard]] static RankError error_of(const RankProcess& rank);
  void read_others(Generation generation);
  [[nodiscard]] std::vector<OtherError> errors_of_living(Generation generation) const;
  void report_exit(const RankProcess& rank);
  [[nodiscard]] bool fork_pending() const;

  // What is typed for the rank that has a terminal and the keeper's input (keeper_input.cpp).
  [[nodiscard]] Ranks::iterator find_reader();
  void read_input();
  void pass_input();

  // The fork server (keeper_fork_server.cpp).
  [[nodiscard]] bool is_prepared_for(const StartForkServer& message);
  void read_fork_server(TimePoint now);
  void take(const fork_server::Prepared& message, process::UniqueFd pidfd, TimePoint now);
  void take(const fork_server::PrepareFailed& message, process::UniqueFd pidfd, TimePoint now);
  void take(const fork_server::Forked& message, process::UniqueFd pidfd, TimePoint now);
  void take(const fork_server::ForkFailed& message, process::UniqueFd pidfd, TimePoint now);
  void fail_fork_server(int exit_code, int signal, const std::string& message);
  void kill_fork_server(const std::string& reason);
  void fork_server_ended();
  void check_fork_deadlines(TimePoint now);

  // The end of everything (keeper_clear.cpp).
  void begin_clearing(std::optional<Generation> generation, bool close, TimePoint now);
  void advance_clearing(TimePoint now);
  [[nodiscard]] bool has_waited_for_left(TimePoint now);
  [[nodiscard]] std::vector<process::ProcessEntry> left_behind() const;
  [[nodiscard]] bool all_processes_gone();
  void finish_clearing(TimePoint now);

  AgentConnection agent_;
  process::UniqueFd child_signals_;
  std::optional<AgentListener> agent_listener_;
  std::optional<TimePoint> accept_paused_until_;  ///< While no descriptor is free for who connects.
  std::optional<TimePoint> alone_since_;          ///< With a listener, while no agent is there.
  std::optional<TimePoint> last_words_since_;     ///< With a listener: closed, and not everything is acknowledged.
  bool agents_end_ = false;                       ///< None will come back.
  ReadBuffer buffer_;
  Ranks ranks_;
  Slot next_slot_ = 1;
  std::int64_t exits_seen_ = 0;
  process::OutOfMemoryKills out_of_memory_;
  Generation heard_ = 0;         ///< The newest one of which a rank has failed.
  Generation ended_ = 0;         ///< Of which a rank has ended last.
  bool has_ended_well_ = false;  ///< Every rank of that one that has ended.
  std::optional<ForkServerProcess> fork_server_;
  std::optional<StartForkServer> prepared_for_;  ///< What a fork server that nobody has asked for yet is ready for.
  bool fork_server_ready_ = false;
  bool needs_fork_server_ = false;                ///< It gives its ranks a backend, which they lack by exec.
  bool told_of_exec_ = false;                     ///< That a rank had to be started by exec in place of by fork.
  int fork_server_signal_ = 0;                    ///< By which the last one has ended.
  bool fork_server_failed_ = false;               ///< Said to the agent; its end is not said again.
  std::string fork_server_killed_for_;            ///< Why we killed it; empty if we did not.
  std::optional<TimePoint> fork_link_closed_at_;  ///< It has closed its link; its end should follow.
  std::optional<TimePoint> fork_held_until_;      ///< It has ended, and a debugger keeps its status.
  std::optional<Clearing> clearing_;
  std::string input_;             ///< Read, and not taken by the rank's terminal yet.
  bool input_ended_ = false;      ///< There is no more.
  std::optional<int> exit_code_;  ///< Set when the loop is to end.
  std::string lost_agent_;        ///< Why the agent counts as gone; empty while it is there.
  std::vector<pollfd> polled_;    ///< Rebuilt for every wait, in step with watched_.
  std::vector<Watch> watched_;
};

}  // namespace sgd::keeper

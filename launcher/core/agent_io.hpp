#pragma once
// What an agent's machine is told, and what it asks its shell to do.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/base/ids.hpp"
#include "common/base/time.hpp"
#include "common/messages/cluster.hpp"
#include "common/messages/keeper.hpp"
#include "common/messages/link.hpp"

namespace sgd::core {

/// Number of one accepted worker link; never reused by one incarnation.
using ConnectionId = std::uint64_t;

/// What the shell knows of its node and the core needs for decisions.
struct AgentFacts {
  NodeId node;
  std::string address;  ///< Where other nodes reach this one.
  Incarnation incarnation = 0;
  int slots = 0;                                  ///< Room for workers.
  std::vector<int> allowed_cores;                 ///< Of this process's affinity.
  std::vector<std::vector<int>> numa_nodes = {};  ///< Allowed cores by NUMA node; empty: not known, or one.
  std::string worker_program;                     ///< Path of sgd-worker, where a job has none of its own.
  std::string python_folder;                      ///< Of our modules for Python; empty: they are not here.
  /// How often a silent coordinator link carries a sign of life; nothing where both are one process.
  std::optional<Duration> beat_interval;
  /// A coordinator that cannot be reached for so long has given this node up: its ranks are ended. Nothing: never.
  std::optional<Duration> orphan_timeout = {};
  bool is_shared = false;              ///< For several runs at a time: each gets its own cores (core_allocation.hpp).
  bool counts_cpus = false;            ///< A worker takes its cores, not only a slot: the slots were not given.
  std::vector<std::string> gpus = {};  ///< As CUDA_VISIBLE_DEVICES names them.
  bool are_gpus_by_bus = false;        ///< Numbers among them count along the bus, and CUDA must be told so.
  std::int64_t memory_bytes = 0;       ///< For workers; 0: not counted.
  std::map<std::string, std::string> labels = {};
  std::string version = {};
  /// The next life of this agent takes its runs over (journal_filter.hpp): keepers and ranks wait so long for it.
  std::optional<Duration> returns_within = {};
};

namespace agent_event {
/// The coordinator can be reached (again).
struct Connected {
  std::string address = {};  ///< Where other nodes reach this one, from now on; empty: as before.
};
struct Disconnected {};  ///< And the link to it is made again.
struct FromCoordinator {
  cluster::ToAgent message;
};
/// Its Started message and descriptors are here.
struct KeeperStarted {
  RunId run;
  std::string link_path = {};  ///< The socket for the run's ranks, to which only its account gets.
};
struct FromKeeper {
  RunId run;
  keeper::FromKeeper message;
};
/// Its link closed, its process is reaped.
struct KeeperClosed {
  RunId run;
  int signal = 0;
  std::string message;
  bool with_agent = false;  ///< While there was no agent.
  bool never_started = false;
};
struct StraysCleared {
  RunId run;
};  ///< Nothing that a lost keeper left runs any more.
/// The answer to ReservePort.
struct PortReserved {
  RunId run;
  Generation generation = 0;
  int port = 0;            ///< 0: there is none.
  std::string error = {};  ///< Why, in words.
  std::vector<int> worker_ports = {};
};
struct FromWorker {
  ConnectionId connection = 0;
  int peer_pid = 0;  ///< As the kernel says (SO_PEERCRED): a process below the run's keeper.
  link::FromWorker message;
  RunId run = {};  ///< With a hello: whose socket it came to.
};
struct LinkClosed {
  ConnectionId connection = 0;
};
/// A checkpoint that was asked for is on its way: bytes that have come.
struct FetchAdvanced {
  RunId run;
  std::string path;
  std::int64_t bytes = 0;
};
/// The answer to FetchCheckpoint; fields as in link::Fetched.
struct CheckpointFetched {
  RunId run;
  std::string path;
  std::string error;
  bool missing = false;
};
struct SlotsChanged {
  int slots = 0;
};                      ///< Room for workers is another from now on.
struct LeavingSoon {};  ///< This process was told to end: ranks save and go.
struct Tick {};         ///< next_wakeup() has come.
/// After a replay: this process has taken over from one that ended without a word. What may have changed with it.
struct Resumed {
  int slots = 0;
  std::string address;  ///< Empty: as before, until the next connection shows it.
  std::int64_t memory_bytes = 0;
  std::map<std::string, std::string> labels;
};
}  // namespace agent_event

using AgentEvent =
    std::variant<agent_event::Connected, agent_event::Disconnected, agent_event::FromCoordinator,
                 agent_event::KeeperStarted, agent_event::FromKeeper, agent_event::KeeperClosed,
                 agent_event::StraysCleared, agent_event::PortReserved, agent_event::FromWorker,
                 agent_event::LinkClosed, agent_event::FetchAdvanced, agent_event::CheckpointFetched,
                 agent_event::SlotsChanged, agent_event::LeavingSoon, agent_event::Tick, agent_event::Resumed>;

namespace agent_command {
struct StartKeeper {
  RunId run;
  std::string run_dir;
  std::optional<keeper::StartForkServer> first = {};  ///< What it will be told first; not of training.
};
struct TellKeeper {
  RunId run;
  keeper::ToKeeper message;
};
/// An Assignment goes with the run's two descriptors.
struct TellWorker {
  ConnectionId connection = 0;
  RunId run;
  link::ToWorker message;
};
struct DropLink {
  ConnectionId connection = 0;
  std::string reason;
};
/// Reads no more of the link, from the next line on, until ResumeWorker: its peer is to wait.
struct PauseWorker {
  ConnectionId connection = 0;
};
struct ResumeWorker {
  ConnectionId connection = 0;
};
struct TellCoordinator {
  cluster::FromAgent message;
};
/// Writes down where the ranks of a generation stand, as far as their node can see it: errors/gen-*-rank-*.stack.
struct KeepStacks {
  RunId run;
  Generation generation = 0;
  std::string run_dir;
  std::map<Rank, int> pids;
};
/// Brings a checkpoint to this node, answered by CheckpointFetched.
struct FetchCheckpoint {
  RunId run;
  std::string path;
};
/// For people: something was repaired, or done in a slower way.
struct Warn {
  std::string message;
};
/// The keeper is gone: kill what it left behind, then answer StraysCleared.
struct ClearStrays {
  RunId run;
};
/// A port that is free on all addresses of this node, and `workers` more, answered by PortReserved. They are kept from
/// everybody but programs that set SO_REUSEADDR, as those do that wait at MASTER_PORT, until ReleasePort.
struct ReservePort {
  RunId run;
  Generation generation = 0;
  int workers = 0;
};
/// After a replay: these are to be kept again, unless somebody has one, who is its rank. Nothing is answered.
struct HoldPort {
  RunId run;
  int port = 0;
  std::vector<int> worker_ports = {};
};
struct ReleasePort {
  RunId run;
};
/// Nothing of the run is left here.
struct ForgetRun {
  RunId run;
};
}  // namespace agent_command

using AgentCommand =
    std::variant<agent_command::StartKeeper, agent_command::TellKeeper, agent_command::TellWorker,
                 agent_command::DropLink, agent_command::PauseWorker, agent_command::ResumeWorker,
                 agent_command::TellCoordinator, agent_command::FetchCheckpoint, agent_command::KeepStacks,
                 agent_command::Warn, agent_command::ClearStrays, agent_command::ReservePort, agent_command::HoldPort,
                 agent_command::ReleasePort, agent_command::ForgetRun>;
using AgentCommands = std::vector<AgentCommand>;

}  // namespace sgd::core

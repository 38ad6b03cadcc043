#pragma once
// Coordinator <-> agent. Downwards everything is level-triggered: an agent is told the whole
// desired state of each of its runs with its generation and closes the difference. Upwards,
// state is sent whole at each (re)connect, and facts carry (incarnation, sequence), wait in a
// bounded outbox until acknowledged, and are dropped if seen before.

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "common/base/ids.hpp"
#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"
#include "common/json/shared.hpp"
#include "common/messages/link.hpp"
#include "common/messages/rank_error.hpp"

namespace sgd::cluster {

// ---- coordinator -> agent ----

enum class Want {
  /// The ranks of `generation` will run here: all is made ready for them, none is started, and a port is reserved
  /// (with the backend tensorflow one more for each rank), which PortReserved or PortRefused answers each time.
  kPrepare,
  kRun,    ///< The ranks of `generation` run here.
  kLeave,  ///< They run, and end by themselves at the next epoch's end (or checkpoint), to be started at another size.
  kStop,   ///< They are asked to stop with a checkpoint, and killed at the deadline.
  kClear,  ///< Nothing of this run or of older generations runs here; the fork server stays.
  kGone,   ///< As kClear, and the run's keeper ends too.
};

struct RankPlace {
  Rank rank = 0;
  int local_rank = 0;
};

/// The desired state of one run on one node.
struct DesiredRun {
  RunId run;
  Generation generation = 0;
  GenerationUid uid = 0;  ///< Of `generation`, or of the wish to clear on behalf of it.
  Want want = Want::kClear;
  std::vector<RankPlace> ranks;  ///< Of this node; empty with kClear and kGone.
  int world_size = 0;
  int node_rank = 0;
  int node_count = 1;
  std::string master_address;            ///< Of rank 0's node.
  int master_port = 0;                   ///< As PortReserved said; 0 with kPrepare, and for training, which needs none.
  int restart_count = 0;                 ///< Generations before this one.
  std::vector<std::string> resume_from;  ///< Checkpoint directories to try, the newest first.
  double stop_grace_s = 0;               ///< With kStop.
  int stop_signal = 0;                   ///< With kStop: what a command's ranks are sent; 0: SIGTERM.
  /// With kClear and kGone: how long a command's ranks have from SIGTERM on; 0: they are killed at once.
  double clear_grace_s = 0;
  /// A keeper that was started for an older generation ends first, and with it what it keeps in memory: reports that
  /// led to it may be lost.
  Generation keeper_from = 0;
  std::string run_dir;       ///< Absolute.
  SharedJson job;            ///< The resolved job.
  std::string owner = {};    ///< Who submitted it, by certificate where there is one.
  bool may_be_root = false;  ///< That is root itself, at the coordinator's socket, or an admin by certificate.
  std::vector<std::string> endpoints = {};  ///< With the backend tensorflow: "host:port" of each rank, for TF_CONFIG.
  std::vector<int> ranks_by_node = {};      ///< With the backend horovod: how many each node has, by node_rank.
  std::vector<std::string> left_out_gpus = {};  ///< Of this node: none of these ranks gets one of them.
};
/// A part of a finished exchange of one generation: the values of the ranks from `first` on. Parts come in order.
struct ExchangeDone {
  RunId run;
  Generation generation = 0;
  std::string key;
  Rank first = 0;
  int count = 0;  ///< Of all parts' values together; 0: the exchange is not finished, which answers an ExchangeAsk.
  std::vector<nlohmann::json> values;
};
struct FactAck {
  Incarnation incarnation = 0;
  std::int64_t sequence = 0;
};

/// Would a run of this owner get an account here? Answered by AccountAnswer, and nothing comes of it.
struct AccountAsk {
  std::int64_t number = 0;
  std::string owner;
  bool may_be_root = false;
};

/// For the ranks of a command of this generation, such as SIGUSR1. Nothing else comes of it: lost with its link, it is
/// not sent again.
struct PassSignal {
  RunId run;
  Generation generation = 0;
  GenerationUid uid = 0;
  int signal = 0;
};
/// What have ranks of this generation that go on said of their failure? Answered by RanksRaised where there is such a
/// rank; who has asked does not wait for it for ever.
struct ErrorsAsk {
  RunId run;
  Generation generation = 0;
  GenerationUid uid = 0;
};

/// This agent is not taken, or not now: it closes the connection, and may come again.
struct AgentRefused {
  std::string reason;
};

using ToAgent = std::variant<DesiredRun, ExchangeDone, FactAck, AccountAsk, PassSignal, ErrorsAsk, AgentRefused>;

// ---- agent -> coordinator ----

/// These ports of a node are kept for its ranks of this generation, on all its addresses, until the generation ends.
struct PortReserved {
  int port = 0;                        ///< MASTER_PORT, where rank 0 is on this node.
  std::vector<int> worker_ports = {};  ///< With the backend tensorflow: one for each of its ranks, in their order.
};
/// There is none.
struct PortRefused {
  std::string message;
};
struct WorkerStarted {
  Rank rank = 0;
  int pid = 0;
  std::vector<std::string> gpus = {};  ///< Of its own, by the names that its node has for them.
};
struct WorkerReady {
  Rank rank = 0;
  link::Ready ready;
};
struct WorkerFirstStep {
  Rank rank = 0;
  std::int64_t step = 0;
};
struct WorkerExited {
  Rank rank = 0;
  int pid = 0;
  int exit_code = -1;
  int signal = 0;
  bool core_dumped = false;
  bool caused_by_agent = false;    ///< Killed or stopped on order: never a cause.
  std::string message;             ///< What the worker said of its failure, else empty.
  std::vector<std::string> tail;   ///< Last lines of its output.
  std::string last_object;         ///< As in keeper::Exited.
  std::int64_t step = 0;           ///< Of its last heartbeat.
  double notice_s = 0;             ///< From its end, as the keeper saw it, to this fact.
  RankError error;                 ///< What it said of its failure itself; may be empty.
  std::vector<OtherError> others;  ///< With a failure: what ranks of its node that go on have said of theirs.
  std::string gpu = {};            ///< As in OtherError.
};
/// Answers an ErrorsAsk: ranks of its node that go on, and what they have said of their failure.
struct RanksRaised {
  std::vector<OtherError> others;
};
/// It runs, and either says nothing any more or does not get on.
struct WorkerSilent {
  Rank rank = 0;
  int pid = 0;
  bool waiting = false;  ///< With stalled: inside a collective, so another rank holds it up.
  bool stalled = false;  ///< Heartbeats come, and say the same for stall_timeout; else no heartbeat.
  double silent_s = 0;   ///< Since the last heartbeat, or the last one that said something new.
  std::string message;   ///< Where it stands: "no heartbeat for 5.1 s, in train, step 1200".
};
/// It could not be started at all: program missing, not executable, fork failed.
struct SpawnFailed {
  Rank rank = 0;
  int error = 0;
  std::string message;
};
/// The fork server refused the job (exit code 2) or died; no single rank is to blame.
struct ForkServerFailed {
  int exit_code = -1;
  int signal = 0;
  std::string message;
};
struct KeeperLost {
  int signal = 0;
  std::string message;
  bool with_agent = false;     ///< Its agent had ended, too: whatever ended both is nothing that the run has done.
  bool never_started = false;  ///< The node could not even start it: another node may.
};
struct Report {
  Rank rank = 0;
  link::Report report;
};
struct CheckpointSaved {
  link::CheckpointSaved checkpoint;
};
struct CheckpointFailed {
  link::CheckpointFailed checkpoint;
};
struct CheckpointRejected {
  link::CheckpointRejected checkpoint;
};
struct ResultMade {
  Rank rank = 0;
  nlohmann::json value;
};
/// Of what a rank has written, its log files lack so much, besides what was told of it before.
struct OutputDropped {
  Rank rank = 0;
  std::int64_t lines = 0;
  std::int64_t bytes = 0;
  std::string reason;
};
/// One rank's value of an exchange. Answered by ExchangeDone when all ranks have given theirs.
struct ExchangePut {
  Rank rank = 0;
  std::string key;
  nlohmann::json value;
};
/// Nothing of this generation or older runs here any more, nor will it be started: answers kStop, kClear and kGone.
struct Cleared {
  int killed = 0;
};

using FactBody =
    std::variant<PortReserved, PortRefused, WorkerStarted, WorkerReady, WorkerFirstStep, WorkerExited, WorkerSilent,
                 SpawnFailed, ForkServerFailed, KeeperLost, Report, CheckpointSaved, CheckpointFailed,
                 CheckpointRejected, ResultMade, ExchangePut, Cleared, RanksRaised, OutputDropped>;

/// Something that happened once; acknowledged by (incarnation, sequence).
struct Fact {
  Incarnation incarnation = 0;
  std::int64_t sequence = 0;  ///< From 1, without gaps.
  RunId run;
  Generation generation = 0;
  FactBody body;
  GenerationUid uid = 0;  ///< Of `generation`, as it was told.
};
/// Is it finished? Asked after a reconnect of what ranks wait for, one at a time; always answered by ExchangeDone.
struct ExchangeAsk {
  RunId run;
  Generation generation = 0;
  std::string key;
  GenerationUid uid = 0;
};
/// Newest heartbeat of one rank; may be lost.
struct Progress {
  RunId run;
  Generation generation = 0;
  Rank rank = 0;
  link::Heartbeat heartbeat;
};
/// A run that a node holds, and the newest generation that it was told of.
struct HeldRun {
  RunId run;
  Generation generation = 0;
  int workers = 0;     ///< Ranks of it that are there, of whatever generation, or will be as soon as they can start.
  int world_size = 0;  ///< Of theirs, when they are of `generation`.
  GenerationUid uid = 0;
};
/// Whole state of a node, first message of a connection, and again when something of it changes.
struct NodeState {
  NodeId node;
  Incarnation incarnation = 0;
  std::string address;
  int slots = 0;             ///< Room for workers.
  int cpus = 0;              ///< Cores that its agent may use.
  bool is_new_link = false;  ///< First message of a connection: what is wanted must be told again.
  std::vector<HeldRun> runs;
  bool counts_cpus = false;  ///< A worker takes its cores of `cpus`; else it takes a slot and nothing more.
  int gpus = 0;
  std::int64_t memory_bytes = 0;                   ///< For workers; 0: not known, so it is not counted.
  std::map<std::string, std::string> labels = {};  ///< What jobs may ask for, such as {"gpu": "h100"}.
  std::string version = {};                        ///< Of its sgd-launch.
  bool is_leaving = false;        ///< It was told to end: its ranks are to save and go, nothing new is to come.
  std::int64_t acknowledged = 0;  ///< Facts of this incarnation up to this one were acknowledged.
};
/// Nothing new, but alive.
struct Beat {};

struct AccountAnswer {
  std::int64_t number = 0;  ///< Of the AccountAsk.
  std::string why_not;      ///< Empty: it would.
};

using FromAgent = std::variant<NodeState, Fact, ExchangeAsk, Progress, Beat, AccountAnswer>;

/// One JSON text; framing is the connection's.
[[nodiscard]] std::string encode(const ToAgent& message);
[[nodiscard]] std::string encode(const FromAgent& message);
[[nodiscard]] Result<ToAgent> decode_to_agent(std::string_view json);
[[nodiscard]] Result<FromAgent> decode_from_agent(std::string_view json);
/// As part of a larger JSON text.
[[nodiscard]] nlohmann::json to_json(const ToAgent& message);
[[nodiscard]] nlohmann::json to_json(const FromAgent& message);
[[nodiscard]] Result<ToAgent> to_agent_of(const nlohmann::json& json);
[[nodiscard]] Result<FromAgent> from_agent_of(const nlohmann::json& json);

}  // namespace sgd::cluster

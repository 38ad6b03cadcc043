#pragma once
// The link between a rank and its agent: lines of JSON over a Unix socket, at most 64 KiB each,
// so that any language can speak it with its standard library. The socket's path comes in
// SGD_LINK, the rank's secret in SGD_TOKEN. Unknown fields are ignored; a line of an unknown
// type decodes to Unknown, is counted and ignored. An Assignment travels with descriptors
// (SCM_RIGHTS): first the shared region, then the memory checkpoint.
//
// Where SGD_AGENT_WAIT is set (seconds), an agent that dies comes back to the same path: a rank connects
// again for so long, and says hello with what it has. Both ends count the lines they send and take
// (is_counted()), keep what is not acknowledged by Received, and send again what the other end lacks. A rank
// that does not (Hello::returns false) is told nothing of this: its link has ended.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "common/base/ids.hpp"
#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"

namespace sgd::link {

inline constexpr int kProtocol = 1;
inline constexpr std::size_t kLineBytesMax = 64 << 10;

/// Which report this is, in the order reports are written: compared by (epoch, phase, batch, sequence).
struct ReportKey {
  int epoch = 0;              ///< From 1.
  std::string phase;          ///< "train" before "validate" in one epoch.
  std::int64_t batch = 0;     ///< Batches done in the phase when it was made; 0 for the phase's end.
  std::int64_t sequence = 0;  ///< Tells several reports of one batch apart.
};

struct Hello {
  std::string token;
  int pid = 0;
  int protocol = kProtocol;
  std::string version;
  bool returns = false;       ///< It counts, and comes back when the link is lost.
  std::int64_t received = 0;  ///< Counted lines that it has from the agent: not 0 only when it is back.
};
/// State restored, collectives formed.
struct Ready {
  std::int64_t step = 0;
  int epoch = 0;
  std::string source;        ///< "fresh", "memory" or "disk".
  std::string path;          ///< With "disk": the checkpoint's directory.
  double restore_s = 0;      ///< From the assignment to here.
  std::int64_t redone = -1;  ///< Steps that the generation before had made beyond `step`; -1: not known.
};
/// The generation's first optimizer step is done on this rank; `step` counts from the run's start.
struct FirstStep {
  std::int64_t step = 0;
};
struct Heartbeat {
  std::int64_t step = 0;
  int epoch = 0;
  std::string phase;
  double loss = 0;
  double samples_per_s = 0;
  std::int64_t samples = 0;  ///< This process's so far: with step and phase it tells a thread that stands still.
  bool waiting = false;      ///< The training thread is inside a collective.
  std::int64_t fetched = 0;  ///< Bytes of a checkpoint that the group waits for and that have come.
  /// Silence may be held against it. Not by a program whose thread that says this can be kept from it while all is
  /// well.
  bool watched = true;
  /// How busy (percent), full (MiB) and warm (degrees Celsius) its GPU is; empty: it has none, or its driver does not
  /// say.
  std::vector<double> gpu = {};
};
struct Report {
  ReportKey key;
  std::int64_t step = 0;  ///< Optimizer steps since the start of the run.
  /// NaN travels as null, and comes as NaN; an infinite number comes as "Infinity" or "-Infinity" (codec.hpp).
  nlohmann::json metrics = nlohmann::json::object();
};
struct CheckpointSaved {
  std::string path;  ///< Relative to the run directory: "checkpoints/step-...".
  std::int64_t step = 0;
  int epoch = 0;
  std::int64_t bytes = 0;
  double stall_s = 0;        ///< Time the training thread was held.
  double write_s = 0;        ///< Time from the copy to the rename.
  std::int64_t skipped = 0;  ///< Saves since the one before that were left out because it was still being written.
};
/// A state that was to be on disk, and is not: the disk is full, for example. Training goes on.
struct CheckpointFailed {
  std::int64_t step = 0;
  std::string reason;
};
/// A checkpoint that was given to resume from and is damaged; the next one is tried.
struct CheckpointRejected {
  std::string path;
  std::string reason;
};
/// A checkpoint that is to be resumed from and is not on this node. Answered by Fetching, any number of times, and
/// Fetched.
struct Fetch {
  std::string path;
};
struct ExchangePut {
  std::string key;
  nlohmann::json value;
};
/// A command's rank asks whether to stop: it is told over the link, and not by a signal.
struct Stoppable {};
struct Failed {
  std::string message;
  std::string backtrace;
};
struct ResultMade {
  nlohmann::json value;
};
/// In both directions: counted lines taken so far. The agent's first answer to a rank that is back.
struct Received {
  std::int64_t count = 0;
};
struct Unknown {
  std::string type;
};

using FromWorker =
    std::variant<Hello, Ready, FirstStep, Heartbeat, Report, CheckpointSaved, CheckpointFailed, CheckpointRejected,
                 Fetch, ExchangePut, Stoppable, Failed, ResultMade, Received, Unknown>;

struct Assignment {
  RunId run;
  Generation generation = 0;
  Rank rank = 0;
  int local_rank = 0;
  int world_size = 1;
  int local_world_size = 1;
  int node_rank = 0;
  int node_count = 1;
  std::string bind_address;              ///< Address of this node that the other nodes reach.
  std::string run_dir;                   ///< Absolute; checkpoints/ and errors/ lie in it.
  std::vector<std::string> resume_from;  ///< Checkpoint directories to try, the newest first; empty: begin anew.
  int cpus = 1;                          ///< Intra-op threads.
  nlohmann::json config;                 ///< The resolved job.
};
/// One rank's value of a finished exchange; `count` of them make the set.
struct ExchangeValue {
  std::string key;
  Rank rank = 0;
  int count = 0;
  nlohmann::json value;
};
/// It is on its way: bytes that have come so far.
struct Fetching {
  std::string path;
  std::int64_t bytes = 0;
};
/// It is there, or cannot be.
struct Fetched {
  std::string path;
  std::string error;  ///< Empty: it is there, whole.
  bool missing =
      false;  ///< Nobody has it: another one is tried. Else this node is in trouble, and nothing is known of it.
};
struct Abort {
  Generation generation = 0;
};
struct Stop {
  double deadline_s = 0;
  bool checkpoint = true;
};
/// Leave at the next epoch's end with a checkpoint, or with `at_checkpoint` at the next checkpoint on disk.
struct StopAtEpoch {
  bool at_checkpoint = false;
};
/// The agent closes the link for good: coming back is in vain.
struct Dropped {
  std::string reason;
};

using ToWorker =
    std::variant<Assignment, ExchangeValue, Fetching, Fetched, Abort, Stop, StopAtEpoch, Received, Dropped, Unknown>;

/// Every line but those about the link itself, and those that the next of their kind makes worthless.
[[nodiscard]] bool is_counted(const FromWorker& message);
[[nodiscard]] bool is_counted(const ToWorker& message);

/// One line, with its newline.
[[nodiscard]] std::string encode(const FromWorker& message);
[[nodiscard]] std::string encode(const ToWorker& message);
/// `line` has no newline. Errors name what is wrong with it.
[[nodiscard]] Result<FromWorker> decode_from_worker(std::string_view line);
[[nodiscard]] Result<ToWorker> decode_to_worker(std::string_view line);

}  // namespace sgd::link

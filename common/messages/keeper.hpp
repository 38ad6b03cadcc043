#pragma once
// Agent <-> keeper: JSON frames over the keeper's Unix socket (descriptor 3 of the keeper).
// The keeper has no policy: it starts, watches, signals and clears what it is told, keeps the
// log files, and reports. Output for the console travels as chunk frames (OutputHeader, then
// whole lines), within a window that the agent opens by OutputAck.
//
// Where the agent may die and come back, descriptor 3 is a listening socket. Each agent that connects says
// Attach first and is answered by Started; both ends count what they send and take (is_counted()), keep what
// is not acknowledged by Received, and send again what the other end lacks.

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "common/base/ids.hpp"
#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"

namespace sgd::keeper {

// ---- agent -> keeper ----

/// Starts the run's fork server: `argv` plus the resolved job, sent to it once it is up.
struct StartForkServer {
  std::vector<std::string> argv;
  nlohmann::json job;
  std::string log_path;  ///< Its stdout and stderr, for errors of plug-ins.
};
/// Starts one rank. `log_path` is created with its folders and appended to.
struct Spawn {
  Generation generation = 0;
  Rank rank = 0;
  bool fork_server = false;  ///< From the fork server, else by exec of argv.
  std::vector<std::string> argv;
  std::map<std::string, std::string> env;  ///< Added to the keeper's own environment.
  std::string workdir;                     ///< Empty: the keeper's.
  std::vector<int> cpus;                   ///< Affinity; empty: unchanged.
  int threads = 1;                         ///< Intra-op threads (fork server).
  std::string log_path;
};
/// Sends `signal` to one rank's process (not to its group); a rank that is gone is ignored.
struct Signal {
  Generation generation = 0;
  Rank rank = 0;
  int signal = 0;
};
/// SIGKILL to every descendant but the fork server, reaped, pipes read empty; answered by Cleared.
struct Clear {
  Generation generation = 0;
};
/// As Clear, the fork server too; answered by Cleared, then the keeper exits with 0.
struct Close {};
/// The console has taken this many bytes of output.
struct OutputAck {
  std::int64_t bytes = 0;
};
/// First message of a connection to a listening keeper: counted messages that the agent has from it.
struct Attach {
  std::int64_t received = 0;
};
/// In both directions: counted messages taken so far.
struct Received {
  std::int64_t count = 0;
};
/// No agent will come back: everything ends, as when a link closes that cannot be made again.
struct AgentEnds {};

using ToKeeper = std::variant<StartForkServer, Spawn, Signal, Clear, Close, OutputAck, Attach, Received, AgentEnds>;

// ---- keeper -> agent ----

/// First message; comes with two descriptors: the shared region and the memory checkpoint (memfds, empty).
struct Started {
  int pid = 0;
  std::int64_t received = 0;  ///< Counted messages that it has from the agent.
};
struct ForkServerReady {
  int pid = 0;
  double start_s = 0;
  int threads = 1;
  bool can_fork = true;
};
/// It could not prepare the job (exit code 2), or it died at any time.
struct ForkServerFailed {
  int exit_code = -1;
  int signal = 0;
  std::string message;
};
struct Spawned {
  Generation generation = 0;
  Rank rank = 0;
  int pid = 0;
};
struct SpawnFailed {
  Generation generation = 0;
  Rank rank = 0;
  int error = 0;
  std::string message;
};
/// A rank's process is gone and its pipe has been read until it was empty.
struct Exited {
  Generation generation = 0;
  Rank rank = 0;
  int pid = 0;
  int exit_code = -1;  ///< -1 when a signal ended it.
  int signal = 0;
  bool core_dumped = false;
  std::int64_t sequence = 0;      ///< Order in which the keeper saw exits of the run.
  double detected_s = 0;          ///< When it saw this one, on the node's monotonic clock.
  std::vector<std::string> tail;  ///< Its last lines, at most 20 of at most 400 bytes.
  std::string reason;             ///< What the keeper knows of its end, else empty: out of memory.
};
struct Cleared {
  Generation generation = 0;
  int killed = 0;
};
/// Console lines (or, on a full disk, file bytes) that were dropped for `rank`.
struct OutputDropped {
  Rank rank = 0;
  std::int64_t lines = 0;
  std::int64_t bytes = 0;
  std::string reason;
};

using FromKeeper = std::variant<Started, ForkServerReady, ForkServerFailed, Spawned, SpawnFailed, Exited, Cleared,
                                OutputDropped, Received>;

/// Every message but those about the connection and about console output, which ends with a connection.
[[nodiscard]] bool is_counted(const ToKeeper& message);
[[nodiscard]] bool is_counted(const FromKeeper& message);

/// Head of an output chunk: u32 generation, u32 rank, both in network order, then whole lines.
inline constexpr std::size_t kOutputHeaderBytes = 8;
/// Output bytes on their way to the console without an OutputAck.
inline constexpr std::int64_t kOutputWindowBytes = 4 << 20;
/// A console line longer than this is split and marked.
inline constexpr std::size_t kConsoleLineBytesMax = 64 << 10;
inline constexpr std::size_t kTailLines = 20;
inline constexpr std::size_t kTailLineBytesMax = 400;

[[nodiscard]] std::string encode(const ToKeeper& message);    ///< A whole frame.
[[nodiscard]] std::string encode(const FromKeeper& message);  ///< A whole frame.
[[nodiscard]] Result<ToKeeper> decode_to_keeper(std::string_view json);
[[nodiscard]] Result<FromKeeper> decode_from_keeper(std::string_view json);

}  // namespace sgd::keeper

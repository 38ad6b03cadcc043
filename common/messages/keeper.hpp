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
#include "common/messages/rank_error.hpp"

namespace sgd::keeper {

/// Of a rank: the number of its descriptor less one.
enum class Stream : std::uint8_t { kOut, kErr };

// ---- agent -> keeper ----

/// What a process is given beside the keeper's own environment.
struct Environment {
  std::map<std::string, std::string> set;       ///< In place of what is there.
  std::map<std::string, std::string> defaults;  ///< Unless it is there.
  std::map<std::string, std::string> appended;  ///< Folders, behind those that are there, with a colon between.
};

/// Starts the run's fork server: `argv`, and what it prepares for, sent to it once it is up.
struct StartForkServer {
  std::vector<std::string> argv;
  nlohmann::json job;
  std::string log_path;          ///< Its stdout and stderr, for errors of plug-ins.
  Environment environment = {};  ///< What its ranks have in common.
  std::string workdir = {};      ///< Empty: the keeper's.
};
/// What becomes of one stream of a rank, beside the log file that has both.
struct StreamRules {
  bool is_shown = true;              ///< Goes to the console.
  std::string path;                  ///< A file of this stream alone; empty: none.
  std::vector<std::string> filters;  ///< Lines with one of these in them are copied to `filtered_path`.
  std::string filtered_path;         ///< Of all ranks of the node.
};
/// Starts one rank. `log_path` is created with its folders and appended to.
struct Spawn {
  Generation generation = 0;
  Rank rank = 0;
  bool fork_server = false;  ///< From the fork server, else by exec of argv.
  std::vector<std::string> argv;
  Environment environment;  ///< With a fork server, `set` alone: the rest is the server's.
  std::string workdir;      ///< Empty: the keeper's.
  std::vector<int> cpus;    ///< Affinity; empty: unchanged.
  int threads = 1;          ///< Intra-op threads (fork server).
  std::string log_path;
  StreamRules out;
  StreamRules err;
  bool has_input = false;        ///< It reads the keeper's own standard input; else /dev/null.
  bool has_terminal = false;     ///< Its output is a terminal of its own.
  std::string error_file;        ///< Where it may leave a record of its failure; empty: nowhere.
  std::string line_prefix = {};  ///< In front of its lines in a file of several ranks.
};
/// Sends `signal` to one rank's process; a rank that is gone is ignored.
struct Signal {
  Generation generation = 0;
  Rank rank = 0;
  int signal = 0;
  bool is_for_group = false;  ///< To its process group, as a terminal does.
};
/// Sends `signal` to all ranks that run. SIGWINCH: those that have a terminal get the size of the keeper's.
struct SignalAll {
  int signal = 0;
};
/// SIGKILL to every descendant but the fork server, reaped, pipes read empty; answered by Cleared.
struct Clear {
  Generation generation = 0;
};
/// As Clear, the fork server too; answered by Cleared, then the keeper exits with 0.
struct Close {};
/// What have ranks of this generation that go on said of their failure? Answered by ErrorsSaid.
struct AskErrors {
  Generation generation = 0;
};
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

using ToKeeper = std::variant<StartForkServer, Spawn, Signal, SignalAll, Clear, Close, OutputAck, Attach, Received,
                              AgentEnds, AskErrors>;

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
  std::string reason = {};  ///< Why it cannot, where it has said so.
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
  int signal = 0;  ///< It was to be forked by a fork server that this signal has ended; 0: it was not.
};
/// A rank's process is gone and its pipes have been read until they were empty.
struct Exited {
  Generation generation = 0;
  Rank rank = 0;
  int pid = 0;
  int exit_code = -1;  ///< -1 when a signal ended it.
  int signal = 0;
  bool core_dumped = false;
  std::int64_t sequence = 0;       ///< Order in which the keeper saw exits of the run.
  double detected_s = 0;           ///< When it saw this one, on the node's monotonic clock.
  std::vector<std::string> tail;   ///< Its last lines, at most 20 of at most 400 bytes.
  std::string last_object;         ///< Of rank 0 that ended well: the last of them that begins with {, see below.
  std::string reason;              ///< What the keeper knows of its end, else empty: out of memory.
  RankError error;                 ///< What it said of its failure; may be empty.
  std::vector<OtherError> others;  ///< With a failure: what ranks that go on have said of theirs by now.
};
struct Cleared {
  Generation generation = 0;
  int killed = 0;
};
/// Answers AskErrors; at most kOthersMax, and none when no rank has said anything.
struct ErrorsSaid {
  Generation generation = 0;
  std::vector<OtherError> others;
};
/// Console lines (or, on a full disk, file bytes) that were dropped for `rank`.
struct OutputDropped {
  Rank rank = 0;
  std::int64_t lines = 0;
  std::int64_t bytes = 0;
  std::string reason;
  bool is_on_console = false;  ///< There alone: the log file has them.
};

using FromKeeper = std::variant<Started, ForkServerReady, ForkServerFailed, Spawned, SpawnFailed, Exited, Cleared,
                                OutputDropped, Received, ErrorsSaid>;

/// Every message but those about the connection and about console output, which ends with a connection.
[[nodiscard]] bool is_counted(const ToKeeper& message);
[[nodiscard]] bool is_counted(const FromKeeper& message);

/// Head of an output chunk: u32 generation, u32 rank, u64 keeper, u64 end, all in network order, u8 stream (with 0x80:
/// is_open).
struct OutputHead {
  Generation generation = 0;
  Rank rank = 0;
  Stream stream = Stream::kOut;
  bool is_open = false;  ///< The bytes are a line that is being written: it comes whole later, unless its rank ends.
  /// Where agents come back: which keeper it is (0 where they do not), and how many console bytes it has said with
  /// these, open lines apart. A chunk that comes a second time, since an agent has died with it, is known by them.
  std::uint64_t keeper = 0;
  std::uint64_t end = 0;
};
inline constexpr std::size_t kOutputHeaderBytes = 25;
[[nodiscard]] std::string encode(const OutputHead& head);
/// Of a chunk of at least kOutputHeaderBytes bytes; the error names what is unknown.
[[nodiscard]] Result<OutputHead> decode_output_head(std::string_view chunk);
/// Output bytes on their way to the console without an OutputAck.
inline constexpr std::int64_t kOutputWindowBytes = 4 << 20;
/// A console line longer than this is split and marked.
inline constexpr std::size_t kConsoleLineBytesMax = 64 << 10;
inline constexpr std::size_t kTailLines = 20;
/// Ranks whose errors are told with the exit of another one.
inline constexpr std::size_t kOthersMax = 16;
inline constexpr std::size_t kTailLineBytesMax = 400;
/// Exited::last_object is whole up to here. Of a longer line so much and a little more comes, by which it is known.
inline constexpr std::size_t kLastObjectBytesMax = 8 << 10;
inline constexpr std::size_t kCutObjectBytesMax = kLastObjectBytesMax + 8;

[[nodiscard]] std::string encode(const ToKeeper& message);    ///< A whole frame.
[[nodiscard]] std::string encode(const FromKeeper& message);  ///< A whole frame.
[[nodiscard]] Result<ToKeeper> decode_to_keeper(std::string_view json);
[[nodiscard]] Result<FromKeeper> decode_from_keeper(std::string_view json);

}  // namespace sgd::keeper

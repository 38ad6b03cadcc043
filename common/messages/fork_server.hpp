#pragma once
// Keeper <-> fork server: JSON datagrams over a SOCK_SEQPACKET pair (descriptor 3 of the fork
// server), one message each. Fork carries two descriptors: pipes for the rank's stdout and
// stderr; Forked carries the rank's pidfd.

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "common/base/ids.hpp"
#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"

namespace sgd::fork_server {

// keeper -> fork server
struct Prepare {
  nlohmann::json job;
};
struct Fork {
  Generation generation = 0;
  Rank rank = 0;
  int keeper_pid = 0;                      ///< The rank's parent after the middle process is gone.
  std::map<std::string, std::string> env;  ///< Set in the child; SGD_LINK and SGD_TOKEN are in it.
  std::vector<int> cpus;                   ///< Affinity; empty: unchanged.
  int threads = 1;                         ///< Intra-op threads.
  std::vector<std::string> argv = {};      ///< What a command's rank is; a training rank needs none.
};
using ToForkServer = std::variant<Prepare, Fork>;

// fork server -> keeper
struct Prepared {
  int threads = 1;          ///< Of the process; above 1 it must not fork.
  std::string reason = {};  ///< Why else it must not, in words; empty: it may.
};
struct PrepareFailed {
  int exit_code = 2;
  std::string message;
};
struct Forked {
  Generation generation = 0;
  Rank rank = 0;
  int pid = 0;
};
struct ForkFailed {
  Generation generation = 0;
  Rank rank = 0;
  int error = 0;
  std::string message;
};
using FromForkServer = std::variant<Prepared, PrepareFailed, Forked, ForkFailed>;

[[nodiscard]] std::string encode(const ToForkServer& message);
[[nodiscard]] std::string encode(const FromForkServer& message);
[[nodiscard]] Result<ToForkServer> decode_to_fork_server(std::string_view json);
[[nodiscard]] Result<FromForkServer> decode_from_fork_server(std::string_view json);

}  // namespace sgd::fork_server

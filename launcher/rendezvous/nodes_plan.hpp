#pragma once
// Several machines that train together, each with a launcher of its own and nothing installed: how many there are,
// which one this is, and where they meet. From the words of torchrun's command line and from what Slurm and Kubernetes
// put into the environment. Pure: no file, no name server.

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "common/base/time.hpp"
#include "common/json/diagnostics.hpp"
#include "launcher/net/address.hpp"

namespace sgd::rendezvous {

/// torchrun's options, as they were given.
struct NodesWords {
  std::string nodes;  ///< "2", "1:4"; empty: not given.
  std::string rank;   ///< Of this machine.
  std::string master_addr;
  std::string master_port;
  std::string endpoint;  ///< "HOST", "HOST:PORT".
  std::string id;
  std::string local_addr;
  std::string conf;  ///< "join_timeout=600,last_call_timeout=30".
  std::string secret_file;
  bool is_open = false;  ///< Whoever reaches the port may take part.
  bool is_standalone = false;
};

using Environment = std::map<std::string, std::string>;

struct NodesPlan {
  static constexpr int kDefaultPort = 29500;            ///< torchrun's.
  static constexpr int kDefaultRendezvousPort = 29400;  ///< The same, of --rdzv-endpoint.

  int least = 1;
  int most = 1;
  std::optional<int> rank;  ///< Of this machine; else it is the first one where it is `head`'s host.
  net::Address head;        ///< Where the first machine is reached.
  std::string id;           ///< Those of another one cannot come in.
  std::string secret_file;  ///< Empty: the usual place.
  bool is_open = false;
  bool shares_home = false;  ///< A secret that is missing may be made: all machines see it.
  Duration join_limit = std::chrono::minutes(15);
  Duration last_call = std::chrono::seconds(30);  ///< With `least` machines there, so long more are waited for.
  std::string source;                             ///< "Slurm": who has said it; empty: the command line.
};

/// Nothing: this machine alone, or an error in `diagnostics`.
[[nodiscard]] std::optional<NodesPlan> plan_nodes(const NodesWords& words, const Environment& environment,
                                                  Diagnostics& diagnostics);

/// The name that this machine's agent has: those with a rank in the order of the ranks, and before the others. `chance`
/// tells one without a rank from others: containers may have one host name and one pid.
[[nodiscard]] std::string node_name(const std::optional<int>& rank, bool is_head, const std::string& host, int pid,
                                    std::uint32_t chance);

}  // namespace sgd::rendezvous

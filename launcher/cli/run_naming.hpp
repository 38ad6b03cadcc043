#pragma once
// What every verb that names a run does before it begins: options, help, at most one RUN, and the
// run's folder. What stands in the way is said on stderr, all of it at once.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"
#include "launcher/cli/command_line.hpp"
#include "launcher/net/dialer.hpp"
#include "launcher/net/tls_context.hpp"

namespace sgd::cli {

struct RunVerb {
  std::string name;             ///< "status"
  std::string usage;            ///< What follows the name: "[--json] [RUN]".
  std::string example;          ///< A whole line.
  std::vector<Option> options;  ///< Without --help.
  /// Takes the verb's own words out of those that are no options; empty: it has none.
  std::function<void(std::vector<std::string>& words, Diagnostics& diagnostics)> take_words;
};

struct NamedRun {
  bool is_named = false;  ///< Else the verb ends here, with `exit_code`.
  int exit_code = 0;
  std::string directory;  ///< Absolute; of a run on this machine.
  std::optional<net::Address> cluster;
  std::string run;  ///< On the cluster: an id, a unique prefix, or empty for the latest.
  /// To speak to `cluster` with; empty: the user's. Of a run on this and other machines whose coordinator ends with it.
  std::string identity = {};
};

/// The run's launcher, or the coordinator, is asked. Nothing: the run's launcher is gone. The request is "status",
/// "stop", "nodes", ... with its keys; see coordinator/control_server.hpp and coordinator/client_service.hpp.
[[nodiscard]] Result<std::optional<nlohmann::ordered_json>> ask(const NamedRun& run,
                                                                const nlohmann::ordered_json& request);

/// The same of a run on a cluster, where the coordinator's refusal is an error, too. The error's code is the exit code.
[[nodiscard]] Result<nlohmann::ordered_json> ask_for(const NamedRun& run, const nlohmann::ordered_json& request);

/// The identity to speak to the run's coordinator with.
[[nodiscard]] Result<std::shared_ptr<const net::TlsContext>> tls_of(const NamedRun& run);
/// Notes in the folder of a living run how its coordinator is reached: name_run() looks there.
[[nodiscard]] Status note_coordinator(const std::string& run_dir, const net::Address& coordinator,
                                      const std::string& identity);

/// The run that has this folder on this machine.
[[nodiscard]] NamedRun run_at(const std::string& directory);

/// A run of this machine comes before one of that name on its coordinator, which is asked where no address is given.
[[nodiscard]] NamedRun name_run(const RunVerb& verb, const std::vector<std::string>& arguments);

/// Says `message` on stderr and gives `exit_code` back.
int refuse(int exit_code, const std::string& message);

}  // namespace sgd::cli

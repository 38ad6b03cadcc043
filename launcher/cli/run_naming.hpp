#pragma once
// What every verb that names a run does before it begins: options, help, at most one RUN, and the
// run's folder. What stands in the way is said on stderr, all of it at once.

#include <functional>
#include <string>
#include <vector>

#include "launcher/cli/command_line.hpp"

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
  std::string directory;  ///< Absolute; empty when the verb ends here.
  int exit_code = 0;      ///< Of a verb that ends here.
};

[[nodiscard]] NamedRun name_run(const RunVerb& verb, const std::vector<std::string>& arguments);

/// Says `message` on stderr and gives `exit_code` back.
int refuse(int exit_code, const std::string& message);

}  // namespace sgd::cli

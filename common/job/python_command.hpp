#pragma once
// Commands that are a Python script or module, as far as their words tell: those can be forked off an interpreter that
// has imported what they need (worker/python/sgd_launch_server.py).

#include <optional>
#include <string>
#include <vector>

namespace sgd::job {

struct PythonCommand {
  std::vector<std::string> interpreter;  ///< The program and its options.
  std::vector<std::string> script;       ///< A script, or -m and a module, and its arguments.
};

/// Nothing where it is no Python, or runs neither a script nor a module, or has an option that is not known here.
[[nodiscard]] std::optional<PythonCommand> python_command(const std::vector<std::string>& command);

/// `command` by way of `program`, one of our modules for Python, with `arguments` of its own before the command's.
[[nodiscard]] std::vector<std::string> by_way_of(const std::string& program, const PythonCommand& command,
                                                 const std::vector<std::string>& arguments = {});

}  // namespace sgd::job

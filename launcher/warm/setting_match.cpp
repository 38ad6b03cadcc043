#include "launcher/warm/setting_match.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "common/job/python_command.hpp"
#include "common/json/lenient.hpp"

namespace sgd::warm {
namespace {

constexpr std::array<std::string_view, 23> kOfTerminals = {"_",
                                                           "COLUMNS",
                                                           "COLORTERM",
                                                           "DBUS_SESSION_BUS_ADDRESS",
                                                           "DISPLAY",
                                                           "GPG_TTY",
                                                           "INVOCATION_ID",
                                                           "JOURNAL_STREAM",
                                                           "LESSOPEN",
                                                           "LESSCLOSE",
                                                           "LINES",
                                                           "LS_COLORS",
                                                           "MAIL",
                                                           "OLDPWD",
                                                           "PROMPT_COMMAND",
                                                           "PS1",
                                                           "PWD",
                                                           "SHLVL",
                                                           "STY",
                                                           "SGD_KEEPER",
                                                           "WINDOWID",
                                                           "XDG_SESSION_ID",
                                                           "XDG_VTNR"};
constexpr std::array<std::string_view, 6> kFronts = {"HIST", "PET_", "SSH_", "TERM_", "TMUX", "VSCODE_"};

bool is_of_terminal(std::string_view name) {
  return std::find(kOfTerminals.begin(), kOfTerminals.end(), name) != kOfTerminals.end() ||
         std::any_of(kFronts.begin(), kFronts.end(),
                     [name](std::string_view front) { return name.starts_with(front); });
}

/// The first variable in which they differ; empty: none.
std::string first_difference(const std::map<std::string, std::string>& one,
                             const std::map<std::string, std::string>& other) {
  for (const auto& [name, value] : one) {
    const auto found = other.find(name);
    if (!is_of_terminal(name) && (found == other.end() || found->second != value)) return name;
  }
  for (const auto& [name, value] : other)
    if (!is_of_terminal(name) && !one.contains(name)) return name;
  return "";
}

/// The folder in which the interpreter starts.
std::filesystem::path folder_of(const Setting& setting, const keeper::StartForkServer& server) {
  const std::filesystem::path folder = setting.workdir;
  return server.workdir.empty() ? folder : folder / server.workdir;
}

/// Whether one of the folders, with colons between them, begins at no root: an empty one is the current folder.
bool has_relative(std::string_view folders) {
  for (;;) {
    const std::size_t end = folders.find(':');
    if (!folders.substr(0, end).starts_with('/')) return true;
    if (end == std::string_view::npos) return false;
    folders.remove_prefix(end + 1);
  }
}

/// What an interpreter has looked up in the folder in which it started; empty: nothing.
std::string relative_part(std::string_view program, const std::map<std::string, std::string>& environment) {
  constexpr std::array<std::string_view, 3> kOfPython = {"PYTHONHOME", "PYTHONPATH", "PYTHONUSERBASE"};
  const auto is_relative = [&environment](std::string_view name, bool has_meaning_if_empty) {
    const auto found = environment.find(std::string(name));
    return found != environment.end() && (has_meaning_if_empty || !found->second.empty()) &&
           has_relative(found->second);
  };
  if (program.find('/') == std::string_view::npos) {
    if (is_relative("PATH", true)) return "PATH";
  } else if (!program.starts_with('/')) {
    return std::string(program);
  }
  for (const std::string_view name : kOfPython)
    if (is_relative(name, false)) return std::string(name);
  return "";
}

/// The interpreter, its options, and our program. The script and its arguments, which come behind them, are the run's.
std::vector<std::string> start_of(const keeper::StartForkServer& server) {
  std::vector<std::string> words = server.argv;
  std::vector<std::string> of_rank;
  for (const auto& word : member(server.job, "command"))
    if (word.is_string()) of_rank.push_back(word.get<std::string>());
  if (const auto command = job::python_command(of_rank))
    words.resize(words.size() - std::min(words.size(), command->script.size()));
  return words;
}

}  // namespace

std::map<std::string, std::string> environment_of_ranks(const Setting& setting, const keeper::StartForkServer& server) {
  std::map<std::string, std::string> result = setting.environment;
  for (const auto& [name, value] : server.environment.defaults) result.try_emplace(name, value);
  for (const auto& [name, value] : server.environment.set) result[name] = value;
  for (const auto& [name, folder] : server.environment.appended) {
    std::string& path = result[name];
    path += (path.empty() ? "" : ":") + folder;
  }
  return result;
}

std::optional<Mismatch> mismatch(const Setting& held, const Setting& wanted) {
  const auto one = server_of(held);
  const auto other = server_of(wanted);
  if (!one || !other) return Mismatch{"it names no fork server", false};
  if (start_of(one.value()) != start_of(other.value())) return Mismatch{"the interpreter or its options differ", false};
  if (member(one.value().job, "preload") != member(other.value().job, "preload"))
    return Mismatch{"--preload differs", true};
  const auto environment = environment_of_ranks(wanted, other.value());
  const std::string name = first_difference(environment_of_ranks(held, one.value()), environment);
  if (!name.empty()) return Mismatch{fmt::format("the variable {} differs", name), true};
  if (folder_of(held, one.value()) == folder_of(wanted, other.value())) return std::nullopt;
  const auto& argv = other.value().argv;
  const std::string part = argv.empty() ? "" : relative_part(argv.front(), environment);
  if (!part.empty())
    return Mismatch{fmt::format("it was started in another folder, and {} is relative to it: give whole paths", part),
                    true};
  return std::nullopt;
}

bool is_of_same_script(const Setting& held, const Setting& wanted) {
  const auto one = server_of(held);
  const auto other = server_of(wanted);
  return one && other && one.value().argv == other.value().argv;
}

}  // namespace sgd::warm

#include "launcher/warm/setting_match.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

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
  if (one.value().argv != other.value().argv) return Mismatch{"the interpreter or its options differ", false};
  if (member(one.value().job, "preload") != member(other.value().job, "preload"))
    return Mismatch{"--preload differs", true};
  const std::string name =
      first_difference(environment_of_ranks(held, one.value()), environment_of_ranks(wanted, other.value()));
  if (!name.empty()) return Mismatch{fmt::format("the variable {} differs", name), true};
  return std::nullopt;
}

}  // namespace sgd::warm

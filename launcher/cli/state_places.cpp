#include "launcher/cli/state_places.hpp"

#include <unistd.h>

#include <cstdlib>

namespace sgd::cli {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string below_home(const char* base_variable, const char* default_base) {
  const std::string base = variable(base_variable);
  return (base.empty() ? variable("HOME") + "/" + default_base : base) + "/sgd-launch";
}

std::string usual_state_dir(const std::string& program) {
  if (::geteuid() == 0) return "/var/lib/sgd-launch/" + program;
  return below_home("XDG_STATE_HOME", ".local/state") + "/" + program;
}

std::string state_dir(const std::string& program) {
  // systemd names several folders with colons between them; ours has one.
  const std::string given = variable("STATE_DIRECTORY");
  return given.empty() ? usual_state_dir(program) : given.substr(0, given.find(':'));
}

}  // namespace

std::string coordinator_state_dir() {
  return state_dir("coordinator");
}
std::string usual_coordinator_state_dir() {
  return usual_state_dir("coordinator");
}
std::string agent_state_dir() {
  return state_dir("agent");
}
std::string user_state_dir() {
  const std::string folder = below_home("XDG_STATE_HOME", ".local/state");
  const bool is_known = folder.front() == '/' && !(variable("XDG_STATE_HOME").empty() && variable("HOME").empty());
  return is_known ? folder : "";
}
std::string user_identity_dir() {
  return below_home("XDG_CONFIG_HOME", ".config") + "/identity";
}

}  // namespace sgd::cli

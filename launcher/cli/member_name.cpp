#include "launcher/cli/member_name.hpp"

#include <pwd.h>
#include <unistd.h>

#include <fmt/format.h>

#include "launcher/coordinator/audit_log.hpp"
#include "launcher/net/peer_identity.hpp"

namespace sgd::cli {
namespace {

std::string as_name(std::string text, const std::string& instead) {
  for (char& letter : text)
    if (!net::is_name(std::string("a") + letter)) letter = '-';
  return net::is_name(text) ? text : instead;
}

}  // namespace

std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0) name[0] = '\0';
  return as_name(name, "localhost");
}

std::string user_name() {
  const passwd* entry = ::getpwuid(::getuid());
  return as_name(entry == nullptr ? "" : entry->pw_name, fmt::format("user-{}", ::getuid()));
}

Status note_action(const std::string& state_dir, const std::string& action, const nlohmann::ordered_json& about) {
  Status written;
  coordinator::AuditLog log([&written](const std::string& message) { written = Error{message}; });
  if (const Status opened = log.open(state_dir); !opened) return opened;
  log.add({user_name(), {}, fmt::format("process {}", ::getpid()), true, ::getuid()}, action, about);
  return written;
}

}  // namespace sgd::cli

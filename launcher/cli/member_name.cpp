#include "launcher/cli/member_name.hpp"

#include <pwd.h>
#include <unistd.h>

#include <fmt/format.h>

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
  const passwd* entry = ::getpwuid(::geteuid());
  return as_name(entry == nullptr ? "" : entry->pw_name, fmt::format("user-{}", ::geteuid()));
}

}  // namespace sgd::cli

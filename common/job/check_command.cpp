#include "common/job/check_command.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "common/json/words.hpp"

namespace sgd::job {
namespace {

/// Who a worker is: other values would have it speak as somebody else, or to nobody.
constexpr std::array<std::string_view, 12> kOfTheLauncher = {
    "RANK",      "LOCAL_RANK", "NODE_RANK",       "WORLD_SIZE",  "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
    "ROLE_RANK", "ROLE_NAME",  "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};

}  // namespace

std::string misfit_of_variable(const std::string& name) {
  if (name.empty() || name.find('=') != std::string::npos || name.find('\0') != std::string::npos)
    return fmt::format("{} is no name of a variable: it must not be empty, and without =", json::quote(name));
  // A trial's own values, as its job has them, are nobody else's.
  const bool is_value = name.starts_with("SGD_PARAM_");
  const bool is_ours = (name.starts_with("SGD_") && !is_value) || name.starts_with("TORCHELASTIC_");
  if (is_ours || std::find(kOfTheLauncher.begin(), kOfTheLauncher.end(), name) != kOfTheLauncher.end())
    return fmt::format("{} says who a worker is, and is set by the launcher: remove it", json::quote(name));
  return {};
}

}  // namespace sgd::job

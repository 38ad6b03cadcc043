#include "launcher/process/file_limit.hpp"

#include <sys/resource.h>

namespace sgd::process {
namespace {

std::optional<std::uint64_t> soft_limit(int resource) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::nullopt;
  return limit.rlim_cur;
}

}  // namespace

void raise_file_limit() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &files);
}

ResourceLimits resource_limits() {
  return {soft_limit(RLIMIT_NOFILE), soft_limit(RLIMIT_AS)};
}

}  // namespace sgd::process

#include "launcher/process/file_limit.hpp"

#include <sys/resource.h>

namespace sgd::process {

void raise_file_limit() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace sgd::process

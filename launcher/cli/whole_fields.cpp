#include "launcher/cli/whole_fields.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

namespace sgd::cli {

std::string whole_fields(const std::string& line, std::size_t columns) {
  if (line.size() <= columns) return line;
  const std::size_t end = line.rfind("  ", columns);
  return end == std::string::npos || end == 0 ? line : line.substr(0, end);
}

std::string whole_fields(const std::string& line) {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return line;
  return whole_fields(line, size.ws_col - 1U);  // The console leaves the last column free.
}

}  // namespace sgd::cli

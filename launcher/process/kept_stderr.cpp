#include "launcher/process/kept_stderr.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>

namespace sgd::process {
namespace {

constexpr int kSeals = F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;

}  // namespace

Result<KeptStderr> KeptStderr::make() {
  UniqueFd file(::memfd_create("sgd-stderr", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return system_error("memfd_create");
  if (::ftruncate(file.get(), kBytes) != 0) return system_error("ftruncate");
  if (::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) return system_error("F_ADD_SEALS");
  return KeptStderr(std::move(file));
}

Result<KeptStderr> KeptStderr::of(pid_t pid) {
  UniqueFd file(::open(fmt::format("/proc/{}/fd/2", pid).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) return system_error("open the standard error of " + std::to_string(pid));
  if (::fcntl(file.get(), F_GET_SEALS) != kSeals) return Error{"it has another one"};
  return KeptStderr(std::move(file));
}

std::string KeptStderr::text() const {
  std::string text(kBytes, '\0');
  const ssize_t count = ::pread(file_.get(), text.data(), text.size(), 0);
  text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  text.resize(std::min(text.size(), text.find('\0')));
  std::replace_if(
      text.begin(), text.end(), [](unsigned char one) { return one != '\n' && (one < 0x20 || one > 0x7e); }, '?');
  return text;
}

std::string last_line(const std::string& text, const std::string& prefix, std::size_t bytes_max) {
  const std::size_t end = text.find_last_not_of("\n ");
  if (end == std::string::npos) return {};
  const std::size_t before = text.rfind('\n', end);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  std::string line = text.substr(begin, end + 1 - begin);
  if (line.starts_with(prefix)) line.erase(0, prefix.size());
  return line.substr(0, bytes_max);
}

}  // namespace sgd::process

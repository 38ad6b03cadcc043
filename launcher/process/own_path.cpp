#include "launcher/process/own_path.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace sgd::process {
namespace {

constexpr int kLinksMax = 40;  ///< The kernel's own limit.
constexpr mode_t kFolderMode = 0777;
constexpr int kStep = O_PATH | O_NOFOLLOW | O_CLOEXEC;

Error errno_error() {
  return {std::strerror(errno), errno};
}

UniqueFd beginning_of(const std::string& path) {
  return UniqueFd(::open(path.starts_with('/') ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
}

/// The steps of `path` are the next ones: the last of `steps` comes first.
void put_in_front(const std::string& path, std::vector<std::string>& steps) {
  std::vector<std::string> its;
  for (std::size_t at = 0; at < path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    const std::string step = path.substr(at, end - at);
    if (!step.empty() && step != ".") its.push_back(step);
    at = end + 1;
  }
  steps.insert(steps.end(), its.rbegin(), its.rend());
}

/// As a folder first: one that is mounted when somebody needs it is not mounted for less.
UniqueFd open_step(int at, const std::string& step, bool is_last, OwnPath::Folders folders) {
  if (is_last) return UniqueFd(::openat(at, step.c_str(), kStep));
  UniqueFd next(::openat(at, step.c_str(), kStep | O_DIRECTORY));
  if (!next && errno == ENOENT && folders == OwnPath::Folders::kAreMade) {
    if (::mkdirat(at, step.c_str(), kFolderMode) != 0 && errno != EEXIST) return {};
    next.reset(::openat(at, step.c_str(), kStep | O_DIRECTORY));
  }
  if (!next && (errno == ENOTDIR || errno == ELOOP)) next.reset(::openat(at, step.c_str(), kStep));
  return next;
}

Status check_owner(const struct stat& link, const std::string& step) {
  const bool is_own = ::geteuid() != 0 || link.st_uid == 0;
  if (is_own) return {};
  return Error{fmt::format("\"{}\" on the way there is a link of user {}, and root would write where it leads to: run "
                           "as that user, or name another place",
                           step, link.st_uid),
               EPERM};
}

Result<std::string> text_of_link(int link) {
  std::string target(PATH_MAX, '\0');
  const ssize_t count = ::readlinkat(link, "", target.data(), target.size());
  if (count < 0) return errno_error();
  target.resize(static_cast<std::size_t>(count));
  return target;
}

/// Names of descriptors are links whose text leads nowhere.
bool is_in_proc(int link) {
  struct statfs info {};
  return ::fstatfs(link, &info) == 0 && info.f_type == PROC_SUPER_MAGIC;
}

}  // namespace

Result<OwnPath> OwnPath::find(const std::string& path, Folders folders, LastLink last) {
  UniqueFd at = beginning_of(path);
  if (!at) return errno_error();
  std::vector<std::string> steps;
  put_in_front(path, steps);
  for (int links = 0; !steps.empty();) {
    const std::string step = std::move(steps.back());
    steps.pop_back();
    const bool is_last = steps.empty();
    if (is_last && last == LastLink::kStays) return OwnPath(std::move(at), step, false);
    UniqueFd next = open_step(at.get(), step, is_last, folders);
    if (!next && is_last && errno == ENOENT) return OwnPath(std::move(at), step, false);
    struct stat info {};
    if (!next || ::fstat(next.get(), &info) != 0) return errno_error();
    if (!S_ISLNK(info.st_mode)) {
      if (is_last) return OwnPath(std::move(at), step, false);
      if (!S_ISDIR(info.st_mode)) return Error{std::strerror(ENOTDIR), ENOTDIR};
      at = std::move(next);
      continue;
    }
    if (const Status own = check_owner(info, step); !own) return own.error();
    if (++links > kLinksMax) return Error{std::strerror(ELOOP), ELOOP};
    if (is_in_proc(next.get())) {
      if (is_last) return OwnPath(std::move(at), step, true);
      at.reset(::openat(at.get(), step.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
      if (!at) return errno_error();
      continue;
    }
    const auto target = text_of_link(next.get());
    if (!target) return target.error();
    if (target.value().starts_with('/')) at = beginning_of(target.value());
    if (!at) return errno_error();
    put_in_front(target.value(), steps);
  }
  return Error{std::strerror(EISDIR), EISDIR};
}

UniqueFd OwnPath::open(const std::string& name, int flags, mode_t mode) const {
  return UniqueFd(::openat(folder(), name.c_str(), flags | O_CLOEXEC | (is_kernels_ ? 0 : O_NOFOLLOW), mode));
}

}  // namespace sgd::process

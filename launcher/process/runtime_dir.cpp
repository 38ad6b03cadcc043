#include "launcher/process/runtime_dir.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "launcher/process/unix_socket.hpp"

namespace sgd::process {
namespace {

constexpr const char* kLockName = "owner.lock";
constexpr const char* kKeptName = "kept";
constexpr int kNamesTried = 100;
/// Room for "/<8 hex>/<socket name>" within the limit of socket paths.
constexpr std::size_t kBaseBytesMax = kSocketPathBytesMax - 32;
/// A folder without a lock is young when its maker may still be about to write one.
constexpr time_t kYoungSeconds = 60;

/// Makes sure that `path` is a folder, ours, and that others cannot do more than pass through it.
Status check_private(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return system_error("cannot create " + path);
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return system_error("cannot look at " + path);
  if (S_ISLNK(info.st_mode)) return Error{path + " is a symbolic link; remove it", ELOOP};
  if (!S_ISDIR(info.st_mode)) return Error{path + " is not a folder; remove it", ENOTDIR};
  if (info.st_uid != ::geteuid()) {
    return Error{path + " belongs to user " + std::to_string(info.st_uid) + "; it cannot be trusted", EPERM};
  }
  if ((info.st_mode & 066) != 0) return Error{path + " is open to others; chmod 700 " + path, EPERM};
  return {};
}

std::string own_runtime_dir() {
  const char* value = ::getenv("XDG_RUNTIME_DIR");
  return value != nullptr ? value : "";
}

std::string random_name() {
  std::uint32_t number = 0;
  if (::getrandom(&number, sizeof number, 0) != sizeof number) number = static_cast<std::uint32_t>(::getpid());
  char text[9];
  std::snprintf(text, sizeof text, "%08x", number);
  return text;
}

bool is_run_name(const std::string& name) {
  return name.size() == 8 && name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

/// The lock file, locked; none when somebody else has it or it was removed meanwhile.
UniqueFd try_lock(const std::string& path, int flags) {
  UniqueFd fd(::open(path.c_str(), flags | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600));
  struct stat info {};
  if (!fd || ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return {};
  if (::fstat(fd.get(), &info) != 0 || info.st_nlink == 0) return {};
  return fd;
}

/// The folder itself, locked: whoever clears up old files below /tmp passes over it, with all that is in it. None when
/// somebody else has it.
UniqueFd lock_folder(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return {};
  return fd;
}

std::string target_of(const std::string& link) {
  std::error_code error;
  return std::filesystem::read_symlink(link, error).string();
}

Status make_link(const std::string& target, const std::string& link) {
  const std::string fresh = link + ".new";
  (void)::unlink(fresh.c_str());
  if (::symlink(target.c_str(), fresh.c_str()) != 0 || ::rename(fresh.c_str(), link.c_str()) != 0)
    return system_error("cannot make the link " + link);
  return {};
}

bool is_kept(const std::string& path) {
  const std::string owner = target_of(path + "/" + kKeptName);
  return !owner.empty() && target_of(owner) == path;
}

bool is_dead(const std::string& path, UniqueFd& lock) {
  if (is_kept(path)) return false;
  const std::string lock_path = path + "/" + kLockName;
  struct stat info {};
  if (::lstat(lock_path.c_str(), &info) == 0) {
    lock = try_lock(lock_path, 0);
    return static_cast<bool>(lock);
  }
  if (::lstat(path.c_str(), &info) != 0 || ::time(nullptr) - info.st_mtime <= kYoungSeconds) return false;
  lock = lock_folder(path);  // Its lock file may have been cleared up as old.
  return static_cast<bool>(lock);
}

/// Of ours, made when somebody else had the usual one; or a new one.
Result<std::string> other_base(const std::string& folder, const std::string& begin) {
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with(begin) && is_run_name(name.substr(begin.size())) && check_private(at->path().string()))
      return at->path().string();
  }
  for (int i = 0; i < kNamesTried; ++i) {
    const std::string path = folder + "/" + begin + random_name();
    if (::mkdir(path.c_str(), 0700) == 0) return path;
    if (errno == EEXIST) continue;
    Error refused = system_error("cannot create " + path);
    refused.message += "; name a folder of this account's own in XDG_RUNTIME_DIR";
    return refused;
  }
  return Error{"cannot make a private folder in " + folder, EEXIST};
}

}  // namespace

std::string runtime_place(const std::string& xdg_runtime_dir, const std::string& temporary) {
  struct stat info {};
  const bool is_good = !xdg_runtime_dir.empty() && xdg_runtime_dir.front() == '/' &&
                       xdg_runtime_dir.size() + sizeof "/sgd-launch" <= kBaseBytesMax &&
                       ::stat(xdg_runtime_dir.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
                       info.st_uid == ::geteuid() && ::access(xdg_runtime_dir.c_str(), W_OK) == 0;
  return is_good ? xdg_runtime_dir : temporary;
}

std::string runtime_place() {
  return runtime_place(own_runtime_dir(), kTemporary);
}

Result<std::string> runtime_base(const std::string& xdg_runtime_dir, const std::string& temporary) {
  if (runtime_place(xdg_runtime_dir, "").empty()) {
    const std::string base = temporary + "/sgd-" + std::to_string(::geteuid());
    if (const Status usual = check_private(base)) return base;
    return other_base(temporary, base.substr(base.rfind('/') + 1) + "-");
  }
  const std::string base = xdg_runtime_dir + "/sgd-launch";
  if (auto checked = check_private(base); !checked) return checked.error();
  return base;
}

Result<std::string> runtime_base() {
  return runtime_base(own_runtime_dir());
}

int remove_dead_runtime_dirs(const std::string& base) {
  std::error_code error;
  std::vector<std::string> candidates;
  for (std::filesystem::directory_iterator at(base, error), end; !error && at != end; at.increment(error)) {
    if (is_run_name(at->path().filename().string())) candidates.push_back(at->path().string());
  }
  int removed = 0;
  for (const std::string& path : candidates) {
    UniqueFd lock;  // Held while removing, so that two starts do not remove it both.
    if (!is_dead(path, lock)) continue;
    std::filesystem::remove_all(path, error);
    if (!error) ++removed;
  }
  return removed;
}

Result<RuntimeDir> RuntimeDir::create(const std::string& base) {
  for (int i = 0; i < kNamesTried; ++i) {
    const std::string path = base + "/" + random_name();
    if (::mkdir(path.c_str(), 0700) != 0) {
      if (errno == EEXIST) continue;
      return system_error("cannot create " + path);
    }
    UniqueFd lock = try_lock(path + "/" + kLockName, O_CREAT);
    if (lock) return RuntimeDir(path, std::move(lock), lock_folder(path));
  }
  return Error{"cannot make a private folder in " + base, EEXIST};
}

Result<RuntimeDir> RuntimeDir::take(const std::string& path) {
  if (const Status checked = check_private(path); !checked) return checked.error();
  UniqueFd lock = try_lock(path + "/" + kLockName, 0);
  if (!lock) return Error{path + " is not a folder that was kept, or somebody has it"};
  return RuntimeDir(path, std::move(lock), lock_folder(path));
}

Status RuntimeDir::let_others_pass() const {
  for (const std::string& folder : {path_.substr(0, path_.rfind('/')), path_})
    if (::chmod(folder.c_str(), 0711) != 0) return system_error("cannot let others through " + folder);
  return {};
}

Status RuntimeDir::keep_for(const std::string& link) const {
  if (const Status made = make_link(path_, link); !made) return made;
  return make_link(link, file(kKeptName));
}

RuntimeDir::RuntimeDir(RuntimeDir&& other) noexcept
    : path_(std::exchange(other.path_, {})),
      lock_(std::move(other.lock_)),
      folder_lock_(std::move(other.folder_lock_)) {}

RuntimeDir& RuntimeDir::operator=(RuntimeDir&& other) noexcept {
  if (this != &other) {
    remove();
    path_ = std::exchange(other.path_, {});
    lock_ = std::move(other.lock_);
    folder_lock_ = std::move(other.folder_lock_);
  }
  return *this;
}

RuntimeDir::~RuntimeDir() {
  remove();
}

void RuntimeDir::remove() {
  if (path_.empty()) return;
  std::error_code error;
  std::filesystem::remove_all(path_, error);  // Ignoring: the next start removes what is left.
  path_.clear();
}

}  // namespace sgd::process

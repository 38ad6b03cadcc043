#include "launcher/process/account.hpp"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <future>
#include <memory>
#include <string_view>

#include <fmt/format.h>

#include "common/base/thread.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::process {
namespace {

constexpr std::size_t kTextBytes = 64 << 10;
constexpr int kGroupsMax = 65536;  ///< The kernel's own limit.

/// Of ours; a name that ends with "_" is the beginning of many.
constexpr std::array<std::string_view, 14> kPassedOn = {"PATH",  "LANG",  "LC_",    "TZ",      "LD_LIBRARY_PATH",
                                                        "OMP_",  "MKL_",  "KMP_",   "CUDA_",   "NVIDIA_",
                                                        "NCCL_", "GLOO_", "TORCH_", "PYTORCH_"};

/// Who an account is, which for our own is in our environment.
constexpr std::array<std::string_view, 4> kPersonal = {"HOME", "USER", "LOGNAME", "SHELL"};

bool is_passed_on(std::string_view name) {
  return std::any_of(kPassedOn.begin(), kPassedOn.end(),
                     [&](std::string_view one) { return one.back() == '_' ? name.starts_with(one) : name == one; });
}

std::string_view name_of(std::string_view entry) {
  return entry.substr(0, entry.find('='));
}

/// What a look-up in files needs and does not get just now; 0: it could have all.
int shortage() {
  constexpr int kAtOnce = 3;  // Its settings, the file, and a service's socket.
  std::array<UniqueFd, kAtOnce> files;
  for (UniqueFd& file : files) {
    file.reset(::open("/etc/passwd", O_RDONLY | O_CLOEXEC));
    if (!file && errno != ENOENT) return errno;
  }
  return 0;
}

Error not_told(const std::string& name, int code) {
  return {fmt::format("the account \"{}\" cannot be looked up: {}", name, std::generic_category().message(code)), code};
}

}  // namespace

Result<Account> look_up_account(const std::string& name) {
  std::vector<char> text(kTextBytes);
  passwd entry{};
  passwd* found = nullptr;
  const int code = ::getpwnam_r(name.c_str(), &entry, text.data(), text.size(), &found);
  // The library takes a file that cannot be opened for one that is not there, and an account in it for none.
  const int lacking = found == nullptr ? shortage() : 0;
  if (lacking != 0 || code != 0) return not_told(name, lacking != 0 ? lacking : code);
  if (found == nullptr) return Error{fmt::format("there is no account \"{}\"", name), ENOENT};
  Account account{entry.pw_name, entry.pw_uid, entry.pw_gid, {}, entry.pw_dir, entry.pw_shell};
  int count = kGroupsMax;
  account.groups.resize(kGroupsMax);
  if (::getgrouplist(entry.pw_name, entry.pw_gid, account.groups.data(), &count) < 0)
    return Error{fmt::format("the groups of account \"{}\" cannot be looked up", name), EIO};
  account.groups.resize(static_cast<std::size_t>(count));
  return account;
}

Error no_answer(const std::string& name, Duration limit) {
  return {fmt::format("who \"{}\" is was not answered within {} by this machine's account service", name,
                      format_duration(limit)),
          ETIMEDOUT};
}

Error not_looked_up(const std::string& name, const Error& why) {
  return {fmt::format("cannot look up \"{}\": {}", name, why.message), why.code};
}

/// On a thread of its own, which stays behind if nobody answers: the caller has other things to do.
Result<Account> find_account(const std::string& name, Duration limit) {
  const auto promise = std::make_shared<std::promise<Result<Account>>>();
  std::future<Result<Account>> answer = promise->get_future();
  // The library's calls wait for a directory service without a limit.
  auto lookup = start_thread([name, promise] { promise->set_value(look_up_account(name)); });
  if (!lookup) return not_looked_up(name, lookup.error());
  // tidy: allow detach: they cannot be interrupted either; the thread owns all that it touches.
  lookup.value().detach();
  if (answer.wait_for(limit) != std::future_status::ready) return no_answer(name, limit);
  return answer.get();
}

std::vector<std::string> environment_of(const Account& account, const char* const* ours) {
  std::vector<std::string> all = {"HOME=" + account.home, "USER=" + account.name, "LOGNAME=" + account.name,
                                  "SHELL=" + account.shell};
  for (; *ours != nullptr; ++ours)
    if (is_passed_on(name_of(*ours))) all.emplace_back(*ours);
  return all;
}

std::vector<std::string> basic_environment(const char* const* ours) {
  std::vector<std::string> all;
  for (; *ours != nullptr; ++ours) {
    const std::string_view name = name_of(*ours);
    const bool is_personal = std::find(kPersonal.begin(), kPersonal.end(), name) != kPersonal.end();
    if (is_personal || is_passed_on(name)) all.emplace_back(*ours);
  }
  return all;
}

Result<uid_t> user_of_process(pid_t pid) {
  struct stat info {};
  const std::string path = fmt::format("/proc/{}", pid);
  if (::stat(path.c_str(), &info) != 0) return system_error("cannot look at " + path);
  return info.st_uid;
}

}  // namespace sgd::process

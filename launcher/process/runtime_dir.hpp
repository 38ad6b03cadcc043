#pragma once
// Where sockets live: a fresh private folder per run under $XDG_RUNTIME_DIR/sgd-launch or
// /tmp/sgd-<uid>, since Unix socket paths end at 107 bytes and network file systems refuse
// them. The parent is a real folder of ours in which nobody else can look around: where somebody else has made
// /tmp/sgd-<uid>, it is another one, /tmp/sgd-<uid>-<8 hex>.
// A folder whose owner is dead (its lock is free) is removed by the next start, unless it is kept for the
// owner's next life: then a link in it leads to a link of the owner's, and that one back.

#include <string>

#include "common/base/result.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::process {

inline constexpr const char* kTemporary = "/tmp";
/// The folder in which the parent of all runs' folders is, or will be; with the environment's $XDG_RUNTIME_DIR.
[[nodiscard]] std::string runtime_place();
[[nodiscard]] std::string runtime_place(const std::string& xdg_runtime_dir, const std::string& temporary);

/// The private parent of all runs' folders, created when missing. Empty `xdg_runtime_dir`: below `temporary`.
[[nodiscard]] Result<std::string> runtime_base(const std::string& xdg_runtime_dir,
                                               const std::string& temporary = kTemporary);
/// With the environment's $XDG_RUNTIME_DIR.
[[nodiscard]] Result<std::string> runtime_base();

/// Removes the folders of dead owners below `base`. Returns how many.
int remove_dead_runtime_dirs(const std::string& base);

/// One run's folder; removed with its contents when this goes.
class RuntimeDir {
 public:
  /// A new folder <8 hex> below `base`, locked as long as this process lives.
  [[nodiscard]] static Result<RuntimeDir> create(const std::string& base);

  /// A folder that an earlier life has kept.
  [[nodiscard]] static Result<RuntimeDir> take(const std::string& path);
  /// Other users get through it and its parent to sockets that let them in; they see and change nothing.
  [[nodiscard]] Status let_others_pass() const;
  /// From here on its owner's death does not make it a dead one. `link` is a path of the owner's, made here.
  [[nodiscard]] Status keep_for(const std::string& link) const;

  RuntimeDir(RuntimeDir&& other) noexcept;
  RuntimeDir& operator=(RuntimeDir&& other) noexcept;
  RuntimeDir(const RuntimeDir&) = delete;
  RuntimeDir& operator=(const RuntimeDir&) = delete;
  ~RuntimeDir();

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Path of a file in it.
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  RuntimeDir(std::string path, UniqueFd lock, UniqueFd folder_lock)
      : path_(std::move(path)), lock_(std::move(lock)), folder_lock_(std::move(folder_lock)) {}
  void remove();

  std::string path_;      ///< Empty after a move.
  UniqueFd lock_;         ///< Holds the lock that says "alive".
  UniqueFd folder_lock_;  ///< The same where old files are cleared up; none where folders cannot be locked.
};

}  // namespace sgd::process

#pragma once
// A folder for temporary files, 0700, as long as this lives. Those of the same name that a killed process of this user
// has left behind are removed by the next one; a file in each tells them from folders of other people's.

#include <string>

#include "launcher/process/unique_fd.hpp"

namespace sgd::cli {

class ScratchFolder {
 public:
  /// `name`: how the folder's begins.
  explicit ScratchFolder(const std::string& name);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  /// Empty where none could be made.
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  process::UniqueFd lock_;  ///< Of the folder: as long as it is held, it is in use.
};

}  // namespace sgd::cli

#pragma once
// A folder for files of a run on a cluster, as long as they are looked at here.

#include <string>

namespace sgd::cli {

class PassingFolder {
 public:
  PassingFolder();
  ~PassingFolder();
  PassingFolder(const PassingFolder&) = delete;
  PassingFolder& operator=(const PassingFolder&) = delete;
  /// Empty where none could be made.
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace sgd::cli

#pragma once
// A folder for temporary files, 0700, as long as this lives.

#include <string>

namespace sgd::cli {

class PassingFolder {
 public:
  /// `name`: how the folder's begins.
  explicit PassingFolder(const std::string& name);
  ~PassingFolder();
  PassingFolder(const PassingFolder&) = delete;
  PassingFolder& operator=(const PassingFolder&) = delete;
  /// Empty where none could be made.
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace sgd::cli

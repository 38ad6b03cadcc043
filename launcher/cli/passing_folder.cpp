#include "launcher/cli/passing_folder.hpp"

#include <stdlib.h>

#include <filesystem>

namespace sgd::cli {

PassingFolder::PassingFolder(const std::string& name) {
  std::error_code error;
  const std::filesystem::path base = std::filesystem::temp_directory_path(error);
  std::string path = (error ? std::filesystem::path("/tmp") : base) / (name + "-XXXXXX");
  if (::mkdtemp(path.data()) != nullptr) path_ = path;
}

PassingFolder::~PassingFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace sgd::cli

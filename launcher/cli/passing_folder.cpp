#include "launcher/cli/passing_folder.hpp"

#include <stdlib.h>

#include <filesystem>

namespace sgd::cli {

PassingFolder::PassingFolder() {
  std::error_code error;
  const std::filesystem::path base = std::filesystem::temp_directory_path(error);
  std::string name = (error ? std::filesystem::path("/tmp") : base) / "sgd-metrics-XXXXXX";
  if (::mkdtemp(name.data()) != nullptr) path_ = name;
}

PassingFolder::~PassingFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace sgd::cli

#include "launcher/cli/program_files.hpp"

#include <cstdlib>
#include <filesystem>

namespace sgd::cli {

std::string own_program() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

std::string worker_program() {
  const char* given = std::getenv("SGD_WORKER");
  if (given != nullptr && *given != '\0') return std::filesystem::absolute(given).string();
  return (std::filesystem::path(own_program()).parent_path() / "sgd-worker").string();
}

std::string python_folder() {
  const char* given = std::getenv("SGD_PYTHON_DIR");
  const std::filesystem::path folder =
      given != nullptr && *given != '\0'
          ? std::filesystem::absolute(given)
          : std::filesystem::path(own_program()).parent_path().parent_path() / "lib" / "sgd-launch" / "python";
  std::error_code error;
  return std::filesystem::is_regular_file(folder / "sgd_launch_server.py", error) ? folder.string() : "";
}

}  // namespace sgd::cli

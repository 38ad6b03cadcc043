#include "launcher/storage/sync_run_files.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace sgd::storage {

/// First all is sent on its way: to the file system it is one commit then, and not one for each file.
void sync_run_files(const std::vector<std::string>& run_dirs) {
  const auto each_file = [&run_dirs](const auto& visit) {
    for (const std::string& run_dir : run_dirs) {
      for (const char* name : {"/events.jsonl", "/metrics.jsonl", "/summary.json", "/nodes.jsonl", ""}) {
        // A pipe that its user has put there holds nobody up.
        const int fd = ::open((run_dir + name).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0) continue;
        visit(fd);
        ::close(fd);
      }
    }
  };
  each_file([](int fd) { (void)::sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE); });  // Ignoring: only a hint.
  each_file([](int fd) { (void)::fsync(fd); });                                         // Ignoring, as said above.
}

}  // namespace sgd::storage

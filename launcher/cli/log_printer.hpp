#pragma once
// The log files of a run in its folder, printed as they grow: its generations in their order, and in each its ranks.

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/cli/log_lines.hpp"

namespace sgd::cli {

class LogPrinter {
 public:
  struct Choice {
    std::optional<int> rank;        ///< Absent: all.
    std::optional<int> generation;  ///< Absent: all.
    bool prefix = true;             ///< "rank: " in front of each line.
  };
  /// False: nobody reads any more.
  using Write = std::function<bool(const std::string& text)>;

  /// So many of the newest generations are looked at while a run lives: those before have ended, and there may be
  /// thousands. Logs of other machines come a little late.
  static constexpr int kGrowing = 8;

  LogPrinter(const std::string& run_dir, Choice choice, Write write);

  /// Prints what is new: the first time, and when the run does not live any more, of all generations. False when nobody
  /// reads.
  bool print_new(bool is_live);
  /// Why not everything that is new could be read; empty: it was.
  [[nodiscard]] const std::string& trouble() const { return trouble_; }
  /// Anything was there to print.
  [[nodiscard]] bool has_found() const { return has_found_; }
  /// There is a file of a rank that was asked for, perhaps an empty one.
  [[nodiscard]] bool has_files() const { return !logs_read_.empty(); }
  /// A last line without newline.
  void print_rest();

 private:
  struct File {
    int generation = 0;
    int rank = 0;
    std::string path;

    auto operator<=>(const File&) const = default;
  };
  /// One log file, which is not kept open: a run may have more of them than a process may have descriptors.
  struct ReadLog {
    LogLines lines;
    off_t bytes = 0;  ///< That were read.
  };

  [[nodiscard]] std::vector<File> files(int from) const;
  bool print_file(const std::string& path, ReadLog& log);
  bool note(const std::string& path);

  std::string logs_;
  Choice choice_;
  Write write_;
  std::map<File, ReadLog> logs_read_;
  std::string buffer_;
  std::string trouble_;
  int newest_ = 0;  ///< Generation.
  bool has_found_ = false;
};

}  // namespace sgd::cli

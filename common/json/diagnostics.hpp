#pragma once
// What a user did wrong in a job file or on the command line: all of it, at once, each with
// its place, in the form compilers use.

#include <string>
#include <vector>

namespace sgd {

struct Diagnostic {
  std::string source;   ///< File name as the user wrote it, or "--set training.epochs" or "--num-workers".
  int line = 0;         ///< From 1; 0 when the source has no lines.
  int column = 0;       ///< From 1, in bytes.
  std::string message;  ///< Names the key and the fix, for example: unknown key "lrr" in
                        ///< "training.optimizer"; did you mean "lr"?
  bool warning = false;

  /// "job.json:4:5: error: <message>".
  [[nodiscard]] std::string text() const;
};

struct Diagnostics {
  std::vector<Diagnostic> items;

  void error(std::string source, int line, int column, std::string message);
  void warn(std::string source, int line, int column, std::string message);
  [[nodiscard]] bool has_errors() const;
};

}  // namespace sgd

#pragma once
// Where this installation's programs lie.

#include <string>

namespace sgd::cli {

/// This program's own file.
[[nodiscard]] std::string own_program();
/// sgd-worker: $SGD_WORKER, else beside this program.
[[nodiscard]] std::string worker_program();
/// Our modules for Python: beside this program, or SGD_PYTHON_DIR; empty: they are not there.
[[nodiscard]] std::string python_folder();

}  // namespace sgd::cli

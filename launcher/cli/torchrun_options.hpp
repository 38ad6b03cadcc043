#pragma once
// The options and variables of torchrun and torch.distributed.launch. Each does what it does there, or is refused, or
// says what happens instead (https://docs.pytorch.org/docs/stable/elastic/run.html).

#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "launcher/cli/run_options.hpp"

namespace sgd::cli {

/// Appends them; they set keys of "process" in the job, and what names the program in `options`. What is said of one is
/// kept in `options.notes`.
void add_torchrun_options(std::vector<Option>& table, RunOptions& options);

/// The program that a torchrun line names, and those of its options that depend on each other. Reads the environment
/// (PYTHON_EXEC, VIRTUAL_ENV) and whether the script is there.
void name_program(const ParsedArguments& parsed, RunOptions& options, Diagnostics& diagnostics);

/// What "auto", "cpu", "gpu" and "xpu" workers a node are here, as a number; an error for what is not here.
[[nodiscard]] Result<int> workers_per_node(const std::string& word, bool is_command);

}  // namespace sgd::cli

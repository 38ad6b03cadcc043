#pragma once
// The record of a failed run for a launcher around this one: what torchrun's agent leaves at its
// TORCHELASTIC_ERROR_FILE.

#include <string>

#include "common/base/result.hpp"
#include "launcher/core/coordinator_io.hpp"

namespace sgd::cli {

/// `failed_at_s`: of the wall clock, where the cause does not tell.
[[nodiscard]] std::string error_record(const core::RunOutcome& outcome, double failed_at_s);
/// Writes it whole or not at all; the error names the file.
[[nodiscard]] Status write_error_record(const std::string& path, const core::RunOutcome& outcome, double failed_at_s);

}  // namespace sgd::cli

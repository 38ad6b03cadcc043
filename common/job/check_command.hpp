#pragma once
// What a job may say of the processes of a command, as far as single keys do not tell.

#include <string>

namespace sgd::job {

/// Why a worker cannot be given a variable of this name by the job; empty: it can.
[[nodiscard]] std::string misfit_of_variable(const std::string& name);

}  // namespace sgd::job

#pragma once
// Built-in models by the "type" that a job file gives them, made as a plug-in's are.

#include <map>
#include <string>

#include "sgd/registry.hpp"

namespace sgd::builtin {

/// A factory throws std::invalid_argument where settings and samples do not go together.
[[nodiscard]] std::map<std::string, ModelFactory> models();

}  // namespace sgd::builtin

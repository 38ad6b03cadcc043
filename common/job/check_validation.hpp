#pragma once
// What of a job needs validation, where it names nothing to validate on. Pure. Of a plug-in's data set only the worker
// knows, and says the same.

#include <string>
#include <vector>

#include "common/json/diagnostics.hpp"
#include "common/json/reader.hpp"

namespace sgd::job {

/// After defaults, as check_relations().
void check_validation(const nlohmann::json& job, const std::vector<std::string>& rejected, const json::SourceMap& root,
                      const std::string& source, Diagnostics& diagnostics);

}  // namespace sgd::job

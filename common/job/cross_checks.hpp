#pragma once
// What a schema cannot say: conditions between several keys of a job. Each error stands at the
// key that is to be changed.

#include <string>
#include <vector>

#include "common/json/diagnostics.hpp"
#include "common/json/reader.hpp"

namespace sgd::job {

/// Before defaults: training or command, batch_size or batch_size_per_worker.
void check_choices(const json::Document& document, const std::string& source, Diagnostics& diagnostics);

/// After defaults, on `job` completed from the document: counts, batch, durations, loss and optimizer.
/// Values at `rejected` paths have an error already and were replaced by defaults: no relation with them is
/// judged.
void check_relations(const nlohmann::json& job, const std::vector<std::string>& rejected, const json::SourceMap& root,
                     const std::string& source, Diagnostics& diagnostics);

/// Source and position of the value at a dotted path, such as a.b or a[1].b, or of the nearest value around it.
struct SourceLocation {
  std::string source;
  json::Position key;
  json::Position value;
};
[[nodiscard]] SourceLocation find_location(const json::SourceMap& root, const std::string& source,
                                           const std::string& path);

}  // namespace sgd::job

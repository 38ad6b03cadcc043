#pragma once
// What the checks of a job's relations read and say.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/job/cross_checks.hpp"
#include "common/json/schema.hpp"

namespace sgd::job {

/// Says errors about dotted paths of one job at their places.
class Reporter {
 public:
  Reporter(const json::SourceMap& root, const std::string& source, Diagnostics& diagnostics)
      : root_(root), source_(source), diagnostics_(diagnostics) {}

  void error_at_value(const std::string& path, std::string message) {
    const SourceLocation location = find_location(root_, source_, path);
    diagnostics_.error(location.source, location.value.line, location.value.column, std::move(message));
  }
  void error_at_key(const std::string& path, std::string message) {
    const SourceLocation location = find_location(root_, source_, path);
    diagnostics_.error(location.source, location.key.line, location.key.column, std::move(message));
  }
  void warn_at_value(const std::string& path, std::string message) {
    const SourceLocation location = find_location(root_, source_, path);
    diagnostics_.warn(location.source, location.value.line, location.value.column, std::move(message));
  }

 private:
  const json::SourceMap& root_;
  const std::string& source_;
  Diagnostics& diagnostics_;
};

/// Values of one job that may be compared: present, and without an error of their own.
class Sound {
 public:
  Sound(const nlohmann::json& job, const std::vector<std::string>& rejected) : job_(job), rejected_(rejected) {}

  /// The value at `path`, or null.
  const nlohmann::json* at(const std::string& path) const {
    const nlohmann::json* here = &job_;
    std::string walked;
    for (const std::string& segment : json::split_path(path)) {
      walked = json::joined(walked, segment);
      if (std::find(rejected_.begin(), rejected_.end(), walked) != rejected_.end()) return nullptr;
      if (!here->is_object() || !here->contains(segment)) return nullptr;
      here = &(*here)[segment];
    }
    return here;
  }

  /// True when a value at `path`, or inside it, has an error: a default stands there that says nothing.
  bool is_touched(const std::string& path) const {
    return std::any_of(rejected_.begin(), rejected_.end(), [&](const std::string& rejected) {
      return rejected == path || rejected.starts_with(path + ".");
    });
  }

 private:
  const nlohmann::json& job_;
  const std::vector<std::string>& rejected_;
};

}  // namespace sgd::job

#pragma once
// From facts to findings: each says what is so, and of what is not as it should be the command that fixes it. Pure.

#include <string>
#include <vector>

#include "common/json/nlohmann.hpp"
#include "launcher/doctor/facts.hpp"

namespace sgd::doctor {

enum class Level {
  kOk,
  kAdvice,   ///< Training works; something is slower, or less safe.
  kMissing,  ///< Something does not work, or will not for long.
};

struct Finding {
  Level level = Level::kOk;
  std::string topic;  ///< "open files"
  std::string text;   ///< What is so.
  std::string fix;    ///< A command, or what to change; empty of kOk.
};

/// In a fixed order: this machine, its programs, then the cluster.
[[nodiscard]] std::vector<Finding> check(const Facts& facts);

/// "ok", "advice", "missing".
[[nodiscard]] const char* name(Level level);
[[nodiscard]] bool is_anything_missing(const std::vector<Finding>& findings);
/// A line a finding, and below each that is not kOk its fix; the last line counts them.
[[nodiscard]] std::string as_text(const std::vector<Finding>& findings);
[[nodiscard]] nlohmann::ordered_json as_json(const std::vector<Finding>& findings);

}  // namespace sgd::doctor

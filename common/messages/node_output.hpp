#pragma once
// In a run of several launchers: what ranks on a machine say, from its agent to its launcher, which shows it. Output
// goes as chunk frames with the keeper's OutputHead in front, as it has come from the keeper; these are the JSON frames
// beside it.

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "common/base/result.hpp"

namespace sgd::node_output {

/// Agent -> launcher: a line for people.
struct Warning {
  std::string text;
};
/// Agent -> launcher: the agent holds no run, and has passed on all that was said.
struct AllSaid {};
using FromAgent = std::variant<Warning, AllSaid>;

/// Launcher -> agent: so many bytes of output are written.
struct Taken {
  std::int64_t bytes = 0;
};
using ToAgent = std::variant<Taken>;

[[nodiscard]] std::string encode(const FromAgent& message);  ///< A whole frame.
[[nodiscard]] std::string encode(const ToAgent& message);    ///< A whole frame.
[[nodiscard]] Result<FromAgent> decode_from_agent(std::string_view json);
[[nodiscard]] Result<ToAgent> decode_to_agent(std::string_view json);

}  // namespace sgd::node_output

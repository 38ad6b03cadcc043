#pragma once
// Reading JSON of any origin whose depth nobody has limited: a value is copied and printed level by level, so that a
// line of brackets alone would end the process that reads it.

#include <string_view>

#include "common/json/nlohmann.hpp"

namespace sgd {

/// Of a file's values: more levels than any of ours has.
inline constexpr int kFileDepthMax = 128;

/// Deepest nesting of brackets outside strings, without recursion and before anything is built.
[[nodiscard]] int bracket_depth(std::string_view text);

/// The value of `text`; discarded where that is no JSON, or nested deeper than kFileDepthMax.
template <class Json>
[[nodiscard]] Json parse_shallow(std::string_view text) {
  if (bracket_depth(text) > kFileDepthMax) return Json(Json::value_t::discarded);
  return Json::parse(text, nullptr, false);
}

}  // namespace sgd

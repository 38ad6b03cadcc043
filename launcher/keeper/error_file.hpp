#pragma once
// The record that a rank leaves of its failure at TORCHELASTIC_ERROR_FILE (torch's @record). Whoever ends while it
// writes leaves a part of one: what is there of it counts.
//
//   {"message": {"message": "ValueError: loss is NaN", "extraInfo": {"py_callstack": "...", "timestamp":
//   "1700000000"}}}
//   {"message": "loss is NaN", "timestamp": 1700000000}

#include <string>
#include <string_view>

#include "common/messages/rank_error.hpp"

namespace sgd::keeper {

/// Empty: it is not there, or says nothing.
[[nodiscard]] RankError read_error_file(const std::string& path);

/// `at_s`: when it was written.
[[nodiscard]] RankError parse_error_record(std::string_view text, double at_s);

}  // namespace sgd::keeper

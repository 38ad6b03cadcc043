#pragma once
// A line of fields, two spaces apart, on a terminal that is too narrow for all of them: the last ones are left out, and
// none is cut, since the begin of a number looks like another number.

#include <string>

namespace sgd::cli {

/// As many fields of `line` as fit `columns`; the first one in any case.
[[nodiscard]] std::string whole_fields(const std::string& line, std::size_t columns);

/// For the status line, which has the width of stderr's terminal.
[[nodiscard]] std::string whole_fields(const std::string& line);

}  // namespace sgd::cli

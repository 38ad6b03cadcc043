#pragma once
// Words for error texts about JSON: quoting that cannot garble a terminal, names of types, lists.

#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"

namespace sgd::json {

/// In double quotes, control characters escaped, cut after 60 bytes.
[[nodiscard]] std::string quote(std::string_view text);
/// False for bytes that JSON cannot carry.
[[nodiscard]] bool is_utf8(std::string_view text);
/// Error (code EILSEQ): `path` is not UTF-8, so that it would be another one in a job, an event or a message. `what`
/// names it.
[[nodiscard]] Status check_path(std::string_view what, std::string_view path);
/// "a string", "an object", ...
[[nodiscard]] const char* type_in_words(const nlohmann::json& value);
/// A scalar as it stands in the file, cut; a container by its type.
[[nodiscard]] std::string shown(const nlohmann::json& value);
/// `a`, `a or b`, `a, b or c`.
[[nodiscard]] std::string alternatives(const std::vector<std::string>& words);

}  // namespace sgd::json

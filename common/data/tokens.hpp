#pragma once
// Files of tokens, looked at without reading them: unsigned integers of one width, least significant byte first, and
// nothing else. A sample is a window of length + 1 tokens; the next window begins with the last token of this one.

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.hpp"

namespace sgd::data {

/// Bytes of a token by the job's "dtype": "u8", "u16" or "u32".
[[nodiscard]] std::int64_t token_bytes(std::string_view dtype);

/// Windows of a file. Errors name the file that is cut, or too short for one window.
[[nodiscard]] Result<std::int64_t> inspect_tokens(const std::string& path, std::int64_t width, std::int64_t length);

}  // namespace sgd::data

#pragma once
// The words for a label that the model gives no output for, whatever file it is in.

#include <cstdint>
#include <string>

#include "common/base/result.hpp"

namespace sgd::worker {

/// "data file x: label 12 of record 5 (the first is 0) is outside 0..9".
[[nodiscard]] Error label_error(const std::string& path, std::int64_t label, const char* unit, std::int64_t number,
                                std::int64_t classes);

}  // namespace sgd::worker

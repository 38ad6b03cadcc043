#pragma once
// "Did you mean": the known word nearest to a misspelt one.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sgd::json {

/// Letters to insert, delete, replace, or swap with their neighbour to turn one word into the other.
[[nodiscard]] int edit_distance(std::string_view a, std::string_view b);

/// The candidate within two edits of `word` (one for words of up to four letters), the first of the nearest.
[[nodiscard]] std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace sgd::json

#pragma once
// Catch2 3 by the names of version 2, which the tests are written in. Only in the way of includes where the system
// has 3.

#include <string>

#include <catch2/catch_all.hpp>

namespace Catch {

using Matchers::EndsWith;
using Matchers::Equals;
using Matchers::StartsWith;

inline auto Contains(const std::string& text) {
  return Matchers::ContainsSubstring(text);
}

}  // namespace Catch

using Catch::Approx;

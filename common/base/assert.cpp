#include "common/base/assert.hpp"

#include <cstdio>
#include <cstdlib>

namespace sgd {

void assertion_failed(const char* expression, const char* file, int line) noexcept {
  std::fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, expression);
  std::abort();
}

}  // namespace sgd

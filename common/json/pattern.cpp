#include "common/json/pattern.hpp"

#include "common/base/assert.hpp"

namespace sgd::json {

Pattern::Pattern(const std::string& text) {
  // Without the places of groups the library walks the text once, with a table of states.
  SGD_ASSERT(::regcomp(&compiled_, text.c_str(), REG_EXTENDED | REG_NOSUB) == 0);
}

Pattern::~Pattern() {
  ::regfree(&compiled_);
}

bool Pattern::is_in(const std::string& text) const {
  return ::regexec(&compiled_, text.c_str(), 0, nullptr, 0) == 0;
}

}  // namespace sgd::json

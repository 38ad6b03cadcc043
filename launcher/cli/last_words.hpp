#pragma once
// The one place where an exception that nothing else took reaches a person. The texts of libraries are for
// programmers: what the system refused is said in its words, the rest in ours.

#include <exception>
#include <string>

namespace sgd::cli {

/// A sentence for `verb` ("status"; empty: none) that `error` ended; `with_details` adds the library's own words.
[[nodiscard]] std::string last_words(const std::string& verb, const std::exception_ptr& error, bool with_details);

}  // namespace sgd::cli

#pragma once
// A regular expression over text of any length: what is sent from outside must not decide how deep a stack goes, as
// with std::regex, which calls itself for each character.

#include <regex.h>

#include <string>

namespace sgd::json {

class Pattern {
 public:
  /// Of the program itself: POSIX's extended syntax, as far as JSON Schema's patterns have it, too.
  explicit Pattern(const std::string& text);
  ~Pattern();
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;

  /// It is found somewhere in `text`, which has no NUL.
  [[nodiscard]] bool is_in(const std::string& text) const;

 private:
  regex_t compiled_{};
};

}  // namespace sgd::json

#pragma once
// The words of one line of a transcript: "submit workers=2 kind=command".

#include <string>
#include <string_view>
#include <vector>

#include "common/base/time.hpp"

namespace sgd::test {

class Words {
 public:
  explicit Words(const std::string& line);

  /// The word at `index`; `otherwise` when the line is shorter.
  [[nodiscard]] std::string at(std::size_t index, const std::string& otherwise = "") const;
  [[nodiscard]] bool has(const std::string& word) const;
  /// "workers=2" among the words: "2"; `otherwise` when it is not there.
  [[nodiscard]] std::string value(const std::string& key, const std::string& otherwise) const;
  [[nodiscard]] int number(const std::string& key, int otherwise) const;
  [[nodiscard]] Duration duration(const std::string& key, Duration otherwise) const;

 private:
  std::vector<std::string> words_;
};

/// The duration that a word of a transcript must be.
[[nodiscard]] Duration duration_of(std::string_view word);

}  // namespace sgd::test

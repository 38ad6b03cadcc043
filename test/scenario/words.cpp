#include "test/scenario/words.hpp"

#include <algorithm>
#include <sstream>

#include "common/base/assert.hpp"

namespace sgd::test {

Words::Words(const std::string& line) {
  std::istringstream stream(line);
  for (std::string word; stream >> word;) words_.push_back(word);
}

std::string Words::at(std::size_t index, const std::string& otherwise) const {
  return index < words_.size() ? words_[index] : otherwise;
}

bool Words::has(const std::string& word) const {
  return std::find(words_.begin(), words_.end(), word) != words_.end();
}

std::string Words::value(const std::string& key, const std::string& otherwise) const {
  for (const std::string& word : words_)
    if (word.starts_with(key + "=")) return word.substr(key.size() + 1);
  return otherwise;
}

int Words::number(const std::string& key, int otherwise) const {
  return std::stoi(value(key, std::to_string(otherwise)));
}

Duration Words::duration(const std::string& key, Duration otherwise) const {
  const std::string text = value(key, "");
  return text.empty() ? otherwise : duration_of(text);
}

Duration duration_of(std::string_view word) {
  const auto duration = parse_duration(word);
  SGD_ASSERT(duration.has_value());
  return *duration;
}

}  // namespace sgd::test

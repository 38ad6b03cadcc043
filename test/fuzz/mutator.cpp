#include "test/fuzz/mutator.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace sgd::fuzz {
namespace {

constexpr std::size_t kPieceBytesMax = 256;
constexpr int kChangesMax = 6;

constexpr const char* kNumbers[] = {"0",
                                    "-1",
                                    "1e308",
                                    "1e-320",
                                    "-0.0",
                                    "0.5",
                                    "255",
                                    "65536",
                                    "2147483647",
                                    "2147483648",
                                    "-2147483649",
                                    "4294967296",
                                    "9223372036854775807",
                                    "9223372036854775808",
                                    "-9223372036854775809",
                                    "18446744073709551615",
                                    "18446744073709551616",
                                    "1e999"};

std::string unescaped(std::string_view quoted) {
  std::string token;
  for (std::size_t at = 0; at < quoted.size(); ++at) {
    if (quoted[at] != '\\' || at + 1 == quoted.size()) {
      token += quoted[at];
    } else if (quoted[at + 1] == 'x' && at + 3 < quoted.size()) {
      token += static_cast<char>(std::strtol(std::string(quoted.substr(at + 2, 2)).c_str(), nullptr, 16));
      at += 3;
    } else {
      token += quoted[++at];
    }
  }
  return token;
}

std::vector<std::string> tokens_of(std::string_view dictionary) {
  std::vector<std::string> tokens;
  while (!dictionary.empty()) {
    const std::string_view line = dictionary.substr(0, dictionary.find('\n'));
    dictionary.remove_prefix(std::min(line.size() + 1, dictionary.size()));
    const std::size_t begin = line.find('"');
    const std::size_t end = line.rfind('"');
    if (!line.starts_with('#') && begin != end) tokens.push_back(unescaped(line.substr(begin + 1, end - begin - 1)));
  }
  return tokens;
}

/// The run of digits around or behind `at`: place and length; length 0 when there is none.
std::pair<std::size_t, std::size_t> number_at(const std::string& text, std::size_t at) {
  const std::size_t begin = std::min(text.find_first_of("0123456789", at), text.size());
  const std::size_t end = std::min(text.find_first_not_of("0123456789.eE+-", begin), text.size());
  return {begin, end - begin};
}

}  // namespace

Mutator::Mutator(std::vector<std::string> inputs, std::string_view dictionary, std::uint64_t seed)
    : inputs_(std::move(inputs)), tokens_(tokens_of(dictionary)), random_(seed) {
  if (inputs_.empty()) inputs_.emplace_back();
}

std::size_t Mutator::below(std::size_t limit) {
  return limit == 0 ? 0 : random_() % limit;
}

std::string_view Mutator::piece_of(std::string_view text) {
  const std::size_t begin = below(text.size() + 1);
  return text.substr(begin, below(std::min(text.size() - begin, kPieceBytesMax) + 1));
}

std::string Mutator::next() {
  std::string input = inputs_[below(inputs_.size())];
  for (std::size_t changes = below(kChangesMax) + 1; changes > 0; --changes) change(input);
  if (input.size() > kBytesMax) input.resize(kBytesMax);
  return input;
}

void Mutator::change(std::string& input) {
  const std::size_t at = below(input.size() + 1);
  switch (below(9)) {
    case 0:
      if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << below(8)));
      break;
    case 1:
      if (at < input.size()) input[at] = static_cast<char>(below(256));
      break;
    case 2:
      input.insert(at, 1, static_cast<char>(below(256)));
      break;
    case 3:
      input.erase(at, piece_of(input).size());
      break;
    case 4:
      input.insert(at, std::string(piece_of(input)));
      break;
    case 5:
      input.insert(at, piece_of(inputs_[below(inputs_.size())]));
      break;
    case 6: {
      const auto [begin, length] = number_at(input, at);
      input.replace(begin, length, kNumbers[below(std::size(kNumbers))]);
      break;
    }
    case 7:
      if (!tokens_.empty()) input.insert(at, tokens_[below(tokens_.size())]);
      break;
    case 8: {  // Deep or long repetition is what makes decoders recurse or grow.
      const std::string piece(piece_of(input).substr(0, 8));
      for (std::size_t times = below(64); times > 0; --times) input.insert(std::min(at, input.size()), piece);
      break;
    }
  }
}

}  // namespace sgd::fuzz

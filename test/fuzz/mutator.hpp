#pragma once
// Random changes of kept inputs, for the driver that has no coverage to guide it: bytes, ranges, pieces of
// other inputs, numbers at their limits, words of a dictionary. Equal seeds give equal inputs.

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace sgd::fuzz {

class Mutator {
 public:
  static constexpr std::size_t kBytesMax = 64 << 10;

  /// `dictionary` in libFuzzer's form: lines of "token", with \xNN for a byte.
  Mutator(std::vector<std::string> inputs, std::string_view dictionary, std::uint64_t seed);
  [[nodiscard]] std::string next();

 private:
  void change(std::string& input);
  [[nodiscard]] std::size_t below(std::size_t limit);
  [[nodiscard]] std::string_view piece_of(std::string_view text);

  std::vector<std::string> inputs_;
  std::vector<std::string> tokens_;
  std::mt19937_64 random_;
};

}  // namespace sgd::fuzz

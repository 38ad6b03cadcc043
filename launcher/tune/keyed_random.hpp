#pragma once
// Random numbers that need no memory: what is drawn follows from a seed, what it is for, and up to two numbers, so that
// trial 7,000 is known without those before it, and a scheduler that begins anew draws what it would have drawn.
// SplitMix64 (Steele, Lea, Flood 2014) from a mixed key. Nothing here is secret.

#include <cstdint>
#include <string_view>

namespace sgd::tune {

class KeyedRandom {
 public:
  KeyedRandom(std::uint64_t seed, std::string_view purpose, std::uint64_t first, std::uint64_t second = 0);

  [[nodiscard]] std::uint64_t next();
  /// In [0, 1), with 53 bits.
  [[nodiscard]] double unit();
  /// In 0 .. count-1, each equally likely; `count` is at least 1.
  [[nodiscard]] std::uint64_t below(std::uint64_t count);
  /// Of mean 0 and standard deviation 1.
  [[nodiscard]] double normal();

 private:
  std::uint64_t state_;
};

}  // namespace sgd::tune

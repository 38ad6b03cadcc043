#pragma once
// The core's only source of chance: a generator that its shell seeds and a test fixes.
// xoshiro256** (Blackman, Vigna 2018). Not for keys that leave the machine.

#include <array>
#include <cstdint>
#include <string>

namespace sgd::core {

class Random {
 public:
  explicit Random(std::array<std::uint64_t, 4> seed);
  [[nodiscard]] std::uint64_t next();
  /// 32 hexadecimal digits.
  [[nodiscard]] std::string token();
  /// A generator made of it goes on where this one is.
  [[nodiscard]] const std::array<std::uint64_t, 4>& state() const { return state_; }

 private:
  std::array<std::uint64_t, 4> state_;
};

}  // namespace sgd::core

#pragma once
// Chance for what may be guessed, such as jitter: a generator that its shell seeds and a test fixes.
// xoshiro256** (Blackman, Vigna 2018); what may not be guessed is secrets.hpp's.

#include <array>
#include <cstdint>

namespace sgd::core {

class Random {
 public:
  explicit Random(std::array<std::uint64_t, 4> seed);
  [[nodiscard]] std::uint64_t next();
  /// A generator made of it goes on where this one is.
  [[nodiscard]] const std::array<std::uint64_t, 4>& state() const { return state_; }

 private:
  std::array<std::uint64_t, 4> state_;
};

}  // namespace sgd::core
